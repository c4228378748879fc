// Command cluster starts a real Kubernetes on this machine, from released programs, with vmapd or
// kube-proxy as its Service proxy. Package kube has the cluster; its documentation has a picture.
package main
