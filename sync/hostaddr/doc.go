// Package hostaddr is the source of the node's own addresses, on which node ports answer. A new or removed address
// takes effect at once.
package hostaddr
