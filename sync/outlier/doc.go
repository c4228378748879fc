// Package outlier ejects endpoints that do not answer: a Node that dies does so for 40 to 50 seconds, until Kubernetes
// says so.
//
//	attempts without an answer, as the kernel counts them ──> judge ──> model.Ejections
//	                                                           │  ↑
//	                                     a connection from here ↓  │ answer, or silence for a second
//	                                                           asker
//
// An endpoint is suspect from the first packet on that a client sends again. It is asked at once, by one connection
// from this node; any answer clears it, also a refusal. It is ejected when it is silent and clients sent two packets
// again. So a NetworkPolicy that stops one client ejects nobody, and a lost packet costs one question.
//
// If endpoints of other namespaces on the same Node are silent, too, the Node is ejected, with all endpoints there. Who
// may write EndpointSlices of one namespace can't have other tenants' endpoints ejected by naming their Node.
//
// What is ejected is asked again after 1, 2, 4, 8 and then each 10 seconds, and comes back with the first answer. Each
// node decides for itself, and forgets it when vmapd ends. What Kubernetes says has priority: an endpoint that is
// removed, or not ready, is forgotten.
//
// The number of questions is bounded for all Services together, and of the endpoints of one Service only some are
// suspect at a time.
package outlier
