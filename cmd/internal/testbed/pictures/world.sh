#!/bin/sh
# Makes trace.svg and doctor.svg in the folder $1: a node with the Services of the demo, whose firewall drops connections
# to pods. "make pictures" of the bench runs it, in a network namespace, and in the folder of the repository.
set -eu
to=$1 dir=$(mktemp -d)
trap 'kill "$daemon"; rm -r "$dir"' EXIT
export CLICOLOR_FORCE=1
ip link set lo up
ip link add pods type veth peer name pods-end
ip address add 192.168.0.2/16 dev pods
ip address add fd00:192:168::2/64 dev pods nodad
ip link set pods-end up
ip link set pods up
ip route add default dev pods
ip neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev pods
for file in ipv4/ip_forward ipv6/conf/all/forwarding; do echo 1 >/proc/sys/net/$file; done
bin/vmapd --from testdata/demo/before --socket "$dir/socket" --hostname-override node-1 \
	--cluster-cidr 10.0.0.0/16,fd00:10::/64 2>"$dir/log" &
daemon=$!
until bin/vmapd services --socket "$dir/socket" >/dev/null 2>&1; do sleep 0.1; done
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
draw() { # NAME COMMAND ...
	name=$1; shift
	bin/"$@" --socket "$dir/socket" >"$dir/out" 2>&1 || true
	bin/pictures "$*" <"$dir/out" >"$to/$name.svg"
}
draw trace vmapd trace default/web:tcp
echo 0 >/proc/sys/net/ipv4/ip_forward
draw doctor vmapd doctor
