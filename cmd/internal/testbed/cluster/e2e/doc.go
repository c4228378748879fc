// Package e2e runs those of Kubernetes' own tests that a Service proxy takes part in, against a
// cluster of the test bench, and makes a table of the results of several proxies.
//
// tests.txt has the names of the tests. Each test runs in a process of its own, several at a time;
// a [Run], a file with the results of one proxy, is written after each, so that a run can be
// continued. A [Balancer] stands for the load balancers of a cloud.
package e2e
