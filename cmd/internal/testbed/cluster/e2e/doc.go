// Package e2e runs those of Kubernetes' own tests that a Service proxy takes part in, against a
// cluster of the test bench, and makes a table of the results of several proxies.
//
// tests.txt has the names of the tests. A few of them share a process, and several processes run at
// a time. A [Run] is a file with the results of one proxy, and is written after each process, so
// that a run can be continued. A [Balancer] stands for the load balancers of a cloud.
package e2e
