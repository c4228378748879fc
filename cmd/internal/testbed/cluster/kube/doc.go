// Package kube starts a real Kubernetes on one machine, from released programs.
//
//	      ┌───────────── switch (a bridge) ──────────────┐
//	      │             │               │                │
//	  control           n1              n2 …          outside
//	192.168.77.10  192.168.77.11   192.168.77.12   192.168.77.250
//	etcd           containerd      containerd      a client that is
//	kube-apiserver kubelet         kubelet         no part of the
//	-controller-   pods of         pods of         cluster, and every
//	 manager       10.244.x.0/24   10.244.y.0/24   default route
//	-scheduler
//
// and the same again in IPv6; network.go has the ranges. Each of them, called a space, is a
// network namespace; a node has mounts and a host name of its own, too, so that it has its own
// /run and /var, as a machine has. No name of a namespace is in /run/netns and nothing is
// mounted on the host: a space lives as long as its processes.
//
// A [Cluster] belongs to a folder, not to a process. [Cluster.Up] starts it, and any other
// process may [Open] the folder, use the cluster, restart parts of it and end it with
// [Cluster.Down]:
//
//	cluster.json    its name, the folder of programs, the number of nodes
//	process/        the command line and the process ID of each process
//	log/            standard output and error of each process, and the audit log
//	pki/            certificates, keys and kubeconfigs
//	images/         *.tar, loaded by each node that joins; images.sh writes them
//	etcd/, nodes/   data
//
// All its processes, those in containers included, are in control groups of its own (templates/groups.sh). Down
// kills whatever is in there: a cluster can be removed even if its command was killed.
package kube
