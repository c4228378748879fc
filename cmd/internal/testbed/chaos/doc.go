// Command chaos injects many faults into a node while clients connect, and counts what the clients lose.
//
//	make -C cmd/internal/testbed chaos
//	make -C cmd/internal/testbed chaos FAULTS='nft|kill'
//
// Each fault has a new world: a client, a node and pods in network namespaces ([lab]), an API server that can misbehave
// ([apitest]), and vmapd as a process in the node. Clients open 200 connections a second to a Service, by its cluster
// IPs and its node port, over TCP and UDP, and keep 20 more that they use all the time. The table has for each fault:
//
//   - lost: new connections without an answer within three seconds, which is longer than the second after which the
//     kernel sends a SYN again. A datagram is sent once only.
//   - broken: how often one of the kept ones ended, and was replaced.
//   - wrong: answers by a pod that is no endpoint of the Service.
//   - recovered within: the time from the fault's end until a change of another Service's endpoint, written to the API
//     server at that end, has reached the client and back again, all rules are as before, and no connection
//     that began later has been lost.
//
// Some faults lose connections by design, and say why below the table. The command fails for all others that lose
// something, and if something does not recover.
package main
