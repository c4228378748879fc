#!/bin/bash
# Prints the lock file of packages of Debian's: for each processor, the packages and all that they depend on, with the
# checksums of a suite with a signature that apt has verified. cmd/internal/release downloads what the file says, without apt.
#
#	lock.sh iptables ipset >packages.lock
. "$(dirname "$0")/debian.sh"
suite=trixie
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for processor in amd64 arm64 ppc64le riscv64 s390x; do # those of Kubernetes' nodes
	(
		lists "$dir/$processor" $suite "$(debian_architecture $processor)"
		# Lines such as 'URL' NAME_VERSION_ARCHITECTURE.deb SIZE SHA256:SUM, where a colon of the version is %3a.
		apt-get -qq --print-uris -o Acquire::ForceHash=sha256 install "$@" |
			sed -E "s|^'$mirror/debian/([^']+)' ([^_ ]+)_([^_ ]+)_[^_ ]+ [0-9]+ SHA256:([0-9a-f]{64})\s*$|$processor \2 \3 \4 \1|" |
			awk 'NF != 5 { print "apt-get printed no package with a checksum: " $0 >"/dev/stderr"; exit 1 } { gsub("%3a", ":", $3); print }'
	)
done | sort >"$dir/lines"
cat <<END
# $(sed 's/ /, /g' <<<"$*") and what they depend on, of Debian's suite $suite; "make -C cmd/internal/testbed images-lock" writes this file anew.
date $(date -u +%F)
mirror $mirror/debian
mirror http://snapshot.debian.org/archive/debian/$(date -u +%Y%m%dT%H%M%SZ)
# processor, package, version, SHA-256, path on the mirror
END
cat "$dir/lines"
