#!/bin/bash
# Writes the container images of a cluster into a folder, as archives for "ctr images import":
#
#	images.sh set PROGRAMS BUILT FOLDER           all; PROGRAMS has those of a Kubernetes release, BUILT vmapd, pause, podserver
#	images.sh vmapd NAME REFERENCE PROGRAM FOLDER one of vmapd, as deploy/Dockerfile describes it
#
# Neither a registry nor a container engine takes part: an image is one layer, made of programs of a Kubernetes release, of
# vmapd, and of Debian packages (debian.sh). Programs of the host are not used: an image would need them installed, and would
# be another one on each host. The images that Kubernetes' own tests ask for have the names that "e2e.test --list-images"
# prints, so the tests find them on the node and pull nothing. What is in them follows the originals: the small programs of
# agnhost are busybox's, its nc is OpenBSD's. Only the shell is dash, because Debian's busybox prefers its own nc to the one
# in the PATH. The other names are those of the constants in kube/node.go.
. "$(dirname "$0")/../debian/debian.sh"
rules='dash iptables ipset nftables conntrack kmod'
architecture=$(dpkg --print-architecture)

# begin [PACKAGE]... makes the folder $root; with busybox-static, it has busybox under the name of each applet that is missing.
begin() {
	local files applet
	rm -rf "$work/root"
	mkdir -p "$root"
	[ $# -gt 0 ] || return 0
	files=$(packages $suite "$architecture" "$@")
	new_root "$root" "$files"
	if [[ " $* " == *' iptables '* ]]; then iptables_links "$root" nft; fi
	for applet in $("$files/bin/busybox" --list); do
		[ -e "$root/usr/sbin/$applet" ] || [ -L "$root/usr/sbin/$applet" ] || ln -s busybox "$root/usr/bin/$applet" 2>/dev/null || true
	done
}

# put FILE PATH copies a program of the host's.
put() { install -D "$1" "$root/$2"; }

# finish NAME ENTRYPOINT COMMAND REFERENCE... writes the archive in the format of "docker save", which
# https://github.com/moby/docker-image-spec describes and containerd imports. All files belong to root there.
finish() {
	local tar='tar --owner=0 --group=0 --numeric-owner' sum
	(cd "$root" && $tar -cf ../layer.tar -- *)
	sum=$(sha256sum <"$work/layer.tar")
	jq -n --arg entry "$2" --arg command "$3" --arg sum "sha256:${sum%% *}" --arg architecture "$architecture" '{
		architecture: $architecture, os: "linux", rootfs: {type: "layers", diff_ids: [$sum]}, config: {
			Entrypoint: [$entry], Cmd: ($command / " "),
			Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}}' >"$work/config.json"
	jq -n '[{Config: "config.json", Layers: ["layer.tar"], RepoTags: $ARGS.positional}]' --args "${@:4}" >"$work/manifest.json"
	$tar -C "$work" -cf "$folder/$1.tar" config.json manifest.json layer.tar
}

vmapd() {
	begin dash iptables ipset kmod nftables busybox-static
	put "$3" usr/local/bin/vmapd
	ln -s vmapd "$root/usr/local/bin/kube-proxy"
	finish "$1" /usr/local/bin/vmapd '' "$2"
}

# listed SUFFIX... prints the references of the tests whose repositories have one of these ends.
listed() {
	local suffix
	for suffix; do grep -E "$suffix:[^:/]*\$" <<<"$list" || true; done
}

# shellcheck disable=SC2046,SC2086 # several names
all() {
	vmapd vmapd example.org/vmapd:test "$built/vmapd"

	begin
	put "$built/pause" pause
	finish pause /pause '' registry.k8s.io/pause:test $(listed /pause)

	begin
	put "$built/podserver" podserver
	finish podserver /podserver '' example.org/podserver:test

	begin
	put "$programs/coredns" coredns
	finish coredns /coredns '' registry.k8s.io/coredns/coredns:test

	begin $rules busybox-static
	put "$programs/kube-proxy" usr/local/bin/kube-proxy
	finish kube-proxy /usr/local/bin/kube-proxy '' registry.k8s.io/kube-proxy:test

	# libc-bin has getent. The wget of Debian's busybox crashes with -T; the other one would try 20 times, for four minutes,
	# where tests expect no answer. The key is that of "agnhost porter", a server that nobody trusts.
	begin bash bind9-dnsutils curl dash iproute2 libc-bin netcat-openbsd wget busybox-static
	put "$programs/agnhost" agnhost
	put "$programs/coredns" coredns
	ln -s agnhost "$root/agnhost-2"
	ln -sf nc.openbsd "$root/usr/bin/nc"
	echo 'tries = 1' >"$root/etc/wgetrc"
	openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
		-out "$root/localhost.crt" -keyout "$root/localhost.key" 2>/dev/null
	chmod 644 "$root/localhost.key"
	finish agnhost /agnhost pause registry.k8s.io/e2e-test-images/agnhost:test $(listed e2e-test-images/agnhost /glibc-dns-testing)

	begin busybox-static
	finish busybox /bin/sh '' $(listed /busybox)

	begin $rules busybox-static
	finish distroless-iptables /bin/sh '' $(listed /distroless-iptables)

	if [ -e "$programs/regression-issue-74839" ]; then
		begin
		put "$programs/regression-issue-74839" regression-issue-74839
		finish regression-issue-74839 /regression-issue-74839 '' $(listed /regression-issue-74839)
	else
		echo "$programs has no regression-issue-74839; the test that needs it will fail" >&2
	fi
}

do=$1
shift
folder=${!#}
mkdir -p "$folder"
work=$(mktemp -d "$folder/image-XXXXXX")
root=$work/root
trap 'rm -rf "$work"' EXIT
case $do in
vmapd) vmapd "$@" ;;
set)
	programs=$1 built=$2
	list=$("$programs/e2e.test" --list-images)
	all
	;;
esac
