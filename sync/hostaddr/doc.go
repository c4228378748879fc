// Package hostaddr is the source of the node's own addresses, on which node ports answer.
//
// It subscribes to changes over route netlink instead of polling, so that a new or removed
// address takes effect at once. A failed read is repeated and never mistaken for a node
// without addresses: reads fail when addresses change at the same time
// (kubernetes/kubernetes#129147).
package hostaddr
