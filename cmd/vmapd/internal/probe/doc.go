// Package probe connects to addresses and says what answered: for "vmapd explain --probe".
//
//	addresses ──> socket, in the node's network namespace or a pod's ──> explain.Answer
//
// The sockets are the kernel's own, without package net: the error queue (IP_RECVERR, ip(7)) tells an
// ICMP error from a reset, and names its sender. Each probe is one connection that is closed at once;
// nothing is sent over TCP and SCTP, and one empty datagram over UDP.
package probe
