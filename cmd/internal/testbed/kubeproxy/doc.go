// Command kubeproxy records the rules that released versions of kube-proxy program, for tests that
// read them.
//
// It builds each version from its Go module, runs it in a network namespace with an API server that
// has the objects of a cluster (a folder with objects.yaml, config.conf and, if rules of others
// are on the node, firewall.rules), and writes what nft or iptables-save list afterwards.
package main
