#!/bin/sh
# Replaces kube-proxy by vmapd on one node, and goes back by itself if vmapd does not become ready there.
#
#   try-one-node.sh NODE IMAGE     vmapd on NODE
#   try-one-node.sh --back NODE    kube-proxy on NODE again, and no rule of vmapd there
#
# It needs kubectl, the DaemonSet and the ConfigMap that kubeadm makes, and the manifests beside it. No pod on another
# node is replaced: vmapd has a DaemonSet of its own, for nodes with a label, and kube-proxy's DaemonSet leaves these.
#
# TIMEOUT is the time for vmapd to become ready, with the pull of its image, in seconds: 60. PULL_SECRET is a secret in
# kube-system for its registry.
#
# Exit codes: 0 done, 1 rolled back, 2 nothing was changed, 3 neither: the last line says what is left to do.
set -eu

deploy=$(dirname "$0")
label=vmapd.io/proxy

k() { kubectl -n kube-system "$@"; }

refuse() {
	echo "$1; nothing was changed" >&2
	exit 2
}

# refuse_helm: a Helm release has the DaemonSet vmapd. kube-proxy would not leave its nodes, and it must not be deleted.
refuse_helm() {
	[ -z "$(k get daemonset vmapd --ignore-not-found -o 'jsonpath={.metadata.annotations.meta\.helm\.sh/release-name}')" ] ||
		refuse "Helm installed the DaemonSet vmapd: move kube-proxy and label nodes by hand"
}

# of_proxy PATH: a field of kube-proxy's DaemonSet.
of_proxy() { k get daemonset kube-proxy -o "jsonpath={$1}"; }

# of_pod APP PATH: a field of the pod of a DaemonSet on the node.
of_pod() { k get pods -l "k8s-app=$1" --field-selector "spec.nodeName=$node" -o "jsonpath={.items[*]$2}"; }

is_ready() { [ "$(of_pod "$1" '.status.conditions[?(@.type=="Ready")].status')" = True ]; }

is_gone() { pods=$(of_pod "$1" .metadata.name) && [ -z "$pods" ]; }

# wait_until SECONDS COMMAND…
wait_until() {
	end=$(($(date +%s) + $1))
	shift
	until "$@"; do
		[ "$(date +%s)" -lt "$end" ] || return 1
		sleep 1
	done
}

# fill_in: a manifest with the image, the secret for its registry, and the address of health for the probes.
fill_in() {
	health=$(echo "${own:-${config-}}" | sed -nE 's/^healthzBindAddress: *["'"']?([^\"' ]+).*/\1/p")
	case $health in
	127.*) host=${health%%:*} ;;
	::1 | "[::1]"*) host=::1 ;;
	*) host= ;;
	esac
	port=$(echo "$health" | sed -nE 's/^([^:]*|\[.*\]):([0-9]+)$/\2/p')
	sed -e "s|example.org/vmapd:latest|$image|" -e "s|containerPort: 10256|containerPort: ${port:-10256}|" \
		${host:+-e "s|httpGet: {path|httpGet: {host: \"$host\", path|"} \
		${PULL_SECRET:+-e "s|^\( *\)hostNetwork: true|&\\
\1imagePullSecrets: [{name: $PULL_SECRET}]|"} "$@"
}

# clean_up removes vmapd's rules from the node, once kube-proxy has written its own.
clean_up() {
	fill_in -e "s|^\( *\)- matchExpressions:|\1- matchFields: [{key: metadata.name, operator: In, values: [$node]}]\\
\1  matchExpressions:|" "$deploy/cleanup.yaml" | kubectl apply -f - || return 1
	if ! wait_until 120 is_ready vmapd-cleanup; then
		k logs "$(of_pod vmapd-cleanup .metadata.name)" -c cleanup --tail=5
		return 1
	fi
	kubectl delete -f "$deploy/cleanup.yaml"
}

# go_back brings kube-proxy back to the node. If no other node has vmapd, kube-proxy's DaemonSet becomes what it was, and
# does so before its pod is made: a pod of another template would be replaced later.
go_back() {
	others=$(kubectl get nodes -l "$label=vmapd" --field-selector "metadata.name!=$node" -o name) || return 1
	before=$(of_proxy '.metadata.annotations.vmapd\.io/strategy') || return 1
	: "${never_ran=$(is_gone vmapd || [ -n "$(of_pod vmapd '.status.containerStatuses[*].containerID')" ] || echo yes)}"
	if [ -z "$others" ] && [ -n "$before" ]; then
		leave='{"spec":{"template":{"spec":{"nodeSelector":{"vmapd.io/proxy":"none"}}}}}'
		k patch daemonset vmapd -p "$leave" && wait_until 60 is_gone vmapd || return 1
		k patch daemonset kube-proxy -p '{"metadata":{"annotations":{"vmapd.io/strategy":null}},
			"spec":{"template":{"spec":{"affinity":null}},"updateStrategy":'"$before}}" || return 1
	fi
	kubectl label node "$node" "$label-" && wait_until 120 is_ready kube-proxy || return 1
	[ "$never_ran" ] || clean_up || return 1
	[ -n "$others" ] || kubectl delete --ignore-not-found -f "$deploy/vmapd.yaml"
}

# roll_back runs when the script ends before vmapd is ready.
roll_back() {
	set +e
	trap '' EXIT INT TERM HUP
	echo "vmapd is not ready on $node; back to kube-proxy" >&2
	pod=$(of_pod vmapd .metadata.name)
	k get events --field-selector "involvedObject.name=$pod,type=Warning" -o custom-columns=:.message --no-headers >&2
	k logs "$pod" -c vmapd --tail=5 2>/dev/null >&2
	if go_back; then
		echo "rolled back: kube-proxy serves $node" >&2
		exit 1
	fi
	echo "the roll-back is not complete; once its cause is gone: $0 --back $node" >&2
	exit 3
}

[ $# = 2 ] || refuse "usage: $0 NODE IMAGE, or $0 --back NODE"
node=$1 image=$2
[ "$1" != --back ] || node=$2
kubectl get node "$node" -o name || refuse "cannot read node $node"
present=$(k get daemonset vmapd --ignore-not-found -o \
	'jsonpath={.spec.template.spec.nodeSelector.vmapd\.io/proxy} {.spec.template.spec.containers[0].image}')

if [ "$1" = --back ]; then
	case $present in
	"vmapd "* | "none "*) image=${present#* } ;;
	*) refuse "there is no DaemonSet vmapd for nodes with the label $label" ;;
	esac
	refuse_helm
	PULL_SECRET=${PULL_SECRET-$(k get daemonset vmapd -o 'jsonpath={.spec.template.spec.imagePullSecrets[0].name}')}
	if go_back; then
		echo "kube-proxy serves $node"
		exit 0
	fi
	echo "not complete; once its cause is gone, repeat $0 --back $node" >&2
	exit 3
fi

config=$(k get configmap kube-proxy -o 'jsonpath={.data.config\.conf}') || refuse "cannot read ConfigMap kube-proxy"
strategy=$(of_proxy .spec.updateStrategy) || refuse "cannot read DaemonSet kube-proxy"
affinity=$(of_proxy .spec.template.spec.affinity)
case $affinity in
"" | *'"key":"'$label'","operator":"NotIn"'*) ;;
*) refuse "kube-proxy's DaemonSet has an affinity of its own, and does not leave labelled nodes" ;;
esac
case $present in
"" | "vmapd $image") ;; # another node has it, or a former run was killed
*) refuse "there is a DaemonSet vmapd, with another image or for all nodes" ;;
esac
refuse_helm
is_gone vmapd || refuse "$node has vmapd already"

never_ran=yes
trap roll_back EXIT
trap 'exit 1' INT TERM HUP
own=$(k get configmap vmapd --ignore-not-found -o 'jsonpath={.data.config\.conf}')
if [ -z "$present" ]; then
	fill_in -f "$deploy/from-kube-proxy.sed" -e "s|# $label: |$label: |" "$deploy/vmapd.yaml" | kubectl apply -f -
fi
backend=$({ k get configmap vmapd -o 'jsonpath={.data.vmapd\.yaml}{"\n"}' && echo "${own:-$config}"; } |
	sed -nE 's/^(backend|mode): *.?(nftables|ipvs|iptables|userspace).*/\2/p' | head -1)
case $backend in
iptables | ipvs) k patch daemonset vmapd --patch-file "$deploy/legacy.yaml" ;; # they need more privileges
esac
if [ -z "$affinity" ]; then
	[ -n "$(of_proxy '.metadata.annotations.vmapd\.io/strategy')" ] ||
		k annotate daemonset kube-proxy "vmapd.io/strategy=$strategy"
	k patch daemonset kube-proxy -p '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'
	k patch daemonset kube-proxy --patch-file "$deploy/kube-proxy-leaves.yaml"
fi
kubectl label node "$node" "$label=vmapd"
unset never_ran
wait_until "${TIMEOUT:-60}" is_ready vmapd
trap - EXIT INT TERM HUP
k exec "$(of_pod vmapd .metadata.name)" -c vmapd -- vmapd status || :
echo "vmapd is ready on $node. Back: $0 --back $node"
