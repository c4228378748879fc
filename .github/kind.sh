#!/usr/bin/env bash
# A cluster of kind without kube-proxy gets vmapd by its chart; then a Service must answer by its name, and the doctor
# find no failure. Needs kind, kubectl, helm and docker, and bin/release of "make images".
set -euo pipefail
cd "$(dirname "$0")/.."

kind create cluster --config - <<-'END'
	kind: Cluster
	apiVersion: kind.x-k8s.io/v1alpha4
	networking:
	  kubeProxyMode: none
END
trap 'kubectl -n kube-system logs ds/vmapd -c vmapd --tail=100; kubectl get pods -A -o wide' ERR
tar -C bin/release/vmapd -cf - . | docker exec -i kind-control-plane ctr -n k8s.io images import --base-name example.org/vmapd -
helm install vmapd bin/release/vmapd-chart.tgz --namespace kube-system --wait --timeout 5m --values - <<-'END'
	image: {repository: example.org/vmapd}
	apiServer: https://kind-control-plane:6443
	config:
	  clusterCIDR: 10.244.0.0/16
	  conntrack: {maxPerCore: 0} # the limit is the host's
END
kubectl create deployment web --image=busybox --replicas=2 -- httpd -f -p 8080 -h /etc
kubectl expose deployment web --port=80 --target-port=8080
kubectl rollout status deployment web --timeout=5m
kubectl run ask --rm -i --restart=Never --image=busybox -- wget -qO- -T 10 http://web.default.svc.cluster.local/hostname
kubectl -n kube-system exec ds/vmapd -c vmapd -- vmapd doctor
