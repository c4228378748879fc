// Package hostaddr is the source of the node's own addresses: node ports answer on
// them.
//
// It follows the kernel over route netlink instead of asking now and then, so an
// address that comes or goes counts at once; and a read that fails, as reads of
// addresses that change meanwhile do (kubernetes/kubernetes#129147), is repeated and
// never mistaken for a node without addresses.
package hostaddr
