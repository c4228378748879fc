#!/bin/sh
# Makes the pictures of the status page and of trace in the folder $1: a node with the Services of shop.yaml and clients,
# with a firewall that drops connections to pods, and a Service without a ready endpoint.
# "make pictures" of the bench runs it, in a network namespace, and in the folder of the repository.
set -eu
to=$1 dir=$(mktemp -d) daemon='' page='' clients=''
trap 'kill $daemon $page $clients; rm -rf "$dir"' EXIT
export CLICOLOR_FORCE=1
ip link set lo up
ip link add pods type veth peer name pods-end
ip address add 192.168.0.2/16 dev pods
ip link set pods-end up
ip link set pods up
ip route add default dev pods
echo 1 >/proc/sys/net/ipv4/ip_forward
cp cmd/internal/testbed/pictures/shop.yaml "$dir"
bin/vmapd --from "$dir/shop.yaml" --socket "$dir/socket" --hostname-override node-1 \
	--cluster-cidr 10.0.0.0/16 --service-counters 2>"$dir/log" &
daemon=$!
until bin/vmapd services --socket "$dir/socket" >/dev/null 2>&1; do sleep 0.1; done
bin/vmapd ui --socket "$dir/socket" >"$dir/page" &
page=$!
until grep -q http "$dir/page"; do sleep 0.1; done
nft -f - <<END
table inet host-firewall {
	chain output {
		type filter hook output priority filter
		ip daddr 10.0.0.0/16 tcp dport 8080 drop
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
END
bin/vmapd trace shop/frontend:http --socket "$dir/socket" >"$dir/out" 2>&1 || true
cmd/internal/testbed/pictures/terminal.sh "vmapd trace shop/frontend:http" <"$dir/out" >"$to/trace.svg"
echo 0 >/proc/sys/net/ipv4/ip_forward # doctor has it as a reason
sed '/name: payments-1}}$/s/ready: true/ready: false/' cmd/internal/testbed/pictures/shop.yaml >"$dir/shop.yaml"
until bin/vmapd services -n shop --socket "$dir/socket" | grep -q 'payments.*rejected'; do sleep 0.1; done
while :; do timeout 0.05 bash -c 'exec 3<>/dev/tcp/10.96.0.20/80' 2>/dev/null || true; done &
clients=$!
# Its own namespaces need privileges that root of a user namespace lacks. The page has all within the time: Doctor's
# findings, and connections a second.
chromium --headless --no-sandbox --user-data-dir="$dir/chromium" --window-size=1180,710 --timeout=15000 \
	--screenshot="$to/page.png" "$(grep http "$dir/page")#shop/frontend" 2>/dev/null
