#!/bin/bash
# Runs those of Kubernetes' own tests that a Service proxy takes part in (tests.txt) against the cluster that runs, in the root
# of the repository, and writes a line for each: its name, pass, FAIL or skipped, and the reason.
#
#	e2e.sh run PROXY FOLDER [PATTERN]  those that FOLDER/PROXY.tsv does not have yet, and whose names fit
#	e2e.sh table FOLDER/*.tsv          a page of them; fails if kube-proxy passes a test that vmapd does not
#
# Four tests share a process, and six processes run at a time. A run can be continued: each process adds its results.
set -euo pipefail
shopt -s inherit_errexit
dir=${XDG_CACHE_HOME:-$HOME/.cache}/vmapd-cluster/c
here=$(dirname "$0")
client=203.0.113.10 # from which tests use load balancers: some want one that is in no network of the nodes
control() { bin/cluster exec control -- "$@"; }
kubectl() { bin/cluster kubectl -- "$@"; }

# Results of some tests, one a line in $tests, in a report of Ginkgo's, which has all tests
# (https://pkg.go.dev/github.com/onsi/ginkgo/v2/types#Report). One that did not run has failed if something outside of the
# tests did, such as the suite's preparation, or if the time was over.
export report='
def why: (.Failure.Message // "") | gsub("\\s+"; " ") | .[:200];
[.[].SpecReports[]] as $all
| first($all[] | select(.LeafNodeType != "It" and .State != "passed" and .State != "skipped"), null) as $outside
| ($tests / "\n")[] | select(. != "") | . as $test
| first(($all[] | select(.LeafNodeType == "It" and ((.ContainerHierarchyTexts // []) + [.LeafNodeText] | join(" ")) == $test)),
	{State: "missing"})
| if .State == "passed" then [$test, "pass", ""]
	elif .State == "skipped" and $outside then [$test, "FAIL", $outside.LeafNodeType + ": " + ($outside | why)]
	elif .State == "skipped" and why != "" or .State == "pending" then [$test, "skipped", why]
	else [$test, "FAIL", .State + ": " + why] end
| @tsv'

# group TESTS runs tests in one process. When its time is over, the tests still clean up and are in the report.
group() {
	local base focus
	base=$out/$(sed -E 's/^\[sig-network\] //; s/[^A-Za-z0-9=]+/-/g; s/^-|-$//g; q' <<<"$1")
	focus=$(sed 's/[][\.*^$()+?{}|]/\\&/g' <<<"$1" | paste -sd '|')
	control "$kube/e2e.test" --provider=skeleton --kubeconfig="$dir/pki/admin.conf" --kubectl-path="$kube/kubectl" \
		--disable-log-dump --dns-domain=cluster.local --ginkgo.focus="($focus)\$" --ginkgo.json-report="$base.json" \
		--ginkgo.timeout=$((6 * $(wc -l <<<"$1")))m --ginkgo.grace-period=1m --ginkgo.no-color >"$base.log" 2>&1 || true
	[ -e "$base.json" ] || { echo "no report was written; the log is $base.log" >&2; return 1; }
	jq -r --arg tests "$1" "$report" "$base.json" | tee -a "$out.tsv"
	rm "$base.json" # it has 20 MB
}

# balance stands for the load balancers of a cloud. Each Service of type LoadBalancer gets an address by its status, and
# packets to it are led to nodes, unchanged: to all of them, or to those that report endpoints at the health-check node port.
balance() {
	local namespace name type class address port affinity ingress last=0 via node
	kubectl get services -A -o json | jq -r '.items[] | [.metadata.namespace, .metadata.name, .spec.type,
		.spec.loadBalancerClass // "-", .status.loadBalancer.ingress[0].ip // "-", .spec.healthCheckNodePort // 0,
		.spec.sessionAffinity] | @tsv' >"$out/services"
	while read -r -u 3 namespace name type class address port affinity; do
		ingress=
		case $type:$class:$address in
		LoadBalancer:-:198.51.100.*) ;;
		*:198.51.100.*)
			publish "$namespace" "$name" null
			continue
			;;
		LoadBalancer:-:-) # else a test has written the status itself
			while [ "$address" = - ] || grep -qF $'\t'"$address"$'\t' "$out/services"; do address=198.51.100.$((++last)); done
			ingress="[{\"ip\":\"$address\"}]"
			sed -i "s/^\($namespace\t$name\t[^\t]*\t[^\t]*\t\)-/\1$address/" "$out/services"
			;;
		*) continue ;;
		esac
		via=()
		for node in $nodes; do
			if [ "$port" = 0 ] || control curl -sf --max-time 1 -o /dev/null "http://$node:$port/"; then via+=(nexthop via "$node"); fi
			# Each node remembers clients for itself, and there is one client.
			if [ "$affinity" = ClientIP ] && [ ${#via[@]} -gt 0 ]; then break; fi
		done
		if [ ${#via[@]} -gt 0 ]; then
			control ip route replace "$address" src $client "${via[@]}"
		else
			control ip route replace blackhole "$address"
		fi
		[ -z "$ingress" ] || publish "$namespace" "$name" "$ingress"
	done 3<"$out/services"
}

# publish NAMESPACE NAME ADDRESSES writes the addresses of a Service's load balancer into its status.
publish() {
	kubectl -n "$1" patch service "$2" --subresource=status -p "{\"status\":{\"loadBalancer\":{\"ingress\":$3}}}" >/dev/null
}

run() {
	local proxy=$1 pattern=${3-} head node zone=0
	out=$(realpath "$2")/${1/:/-}
	export kube out dir
	kube=$(jq -r .KubeDir "$dir/cluster.json")
	mkdir -p "$out"
	head="# $proxy: $(kubectl get nodes -o json | jq -r '"\(.items | length) nodes, " +
		(.items[0].status.nodeInfo | "\(.kubeletVersion), Linux \(.kernelVersion)")')"
	if [[ $proxy == vmapd* ]]; then head+=", $(<"$dir/images/source")"; fi
	[ -e "$out.tsv" ] || echo "$head" >"$out.tsv"
	[ "$(head -n 1 "$out.tsv")" = "$head" ] || { echo "$out.tsv is of another cluster or commit: use another folder" >&2; exit 1; }
	bin/cluster install "$proxy"

	# Each node gets one of three zones, and the tests their address. Connections of a client are to reach several nodes.
	control ip address replace $client/32 dev eth0
	control sysctl -qw net.ipv4.fib_multipath_hash_policy=1
	for node in $(kubectl get nodes -o 'jsonpath={.items[*].metadata.name}'); do
		kubectl label --overwrite node "$node" topology.kubernetes.io/zone=zone-$((zone++ % 3 + 1)) >/dev/null
		bin/cluster exec "$node" -- ip route replace $client via 192.168.77.10 # of the control plane
	done
	nodes=$(kubectl get nodes -o json | jq -r '.items[].status.addresses[] | select(.type == "InternalIP").address' | grep -F .)
	while :; do
		(balance) || echo 'load balancers are late' >&2
		sleep 1
	done &
	balancer=$!
	trap 'kill $balancer' EXIT

	# A test that needs six nodes is left out of a smaller cluster.
	grep -v '^#' "$here/tests.txt" | grep . | { [ "$(wc -w <<<"$nodes")" -ge 6 ] && sed 's/six nodes: //' || grep -v 'six nodes: '; } |
		grep -E -- "$pattern" | awk -F '\t' 'NR == FNR { has[$1] = 1; next } { name = $0; sub("^alone: ", "", name) } !(name in has)' \
		"$out.tsv" - >"$out/left" || true
	export -f group control
	grep -vE '^alone: |\[Serial\]|\[Disruptive\]' "$out/left" |
		xargs -r -d '\n' -n 4 -P 6 bash -c 'group "$(printf "%s\n" "$@")"' _
	grep -E '^alone: |\[Serial\]|\[Disruptive\]' "$out/left" | sed 's/^alone: //' |
		while IFS= read -r test; do group "$test" </dev/null; done
}

table() {
	local f
	echo '| Run | pass | FAIL | skipped |'
	echo '|---|--:|--:|--:|'
	for f; do
		awk -F '\t' 'NR == 1 { head = substr($0, 3) } { n[$2]++ }
			END { printf "| %s | %d | %d | %d |\n", head, n["pass"], n["FAIL"], n["skipped"] }' "$f"
	done
	printf '\n| Test that does not pass | Run | Result |\n|---|---|---|\n'
	awk -F '\t' 'FNR == 1 { run = substr($1, 3); sub(": .*", "", run); next }
		$2 != "pass" { gsub("\\|", "\\|"); gsub("<", "\\&lt;"); printf "| %s | %s | %s: %s |\n", $1, run, $2, $3 }' "$@"
	awk -F '\t' 'FNR == 1 { ours = /^# vmapd/; next } ours { if ($2 != "pass") behind[$1] } !ours && $2 == "pass" { theirs[$1] }
		END { for (t in behind) if (t in theirs) { print "kube-proxy passes more: " t >"/dev/stderr"; bad = 1 } exit bad }' "$@"
}

"$@"
