#!/bin/bash
# Makes what is published of a version, from programs that are built already:
#
#	release.sh make PROGRAMS OUT PROCESSOR...      of the programs vmapd-PROCESSOR in a folder; what OUT has is deleted
#	release.sh unpack LAYOUT PROCESSOR FOLDER      an image's files (root) and configuration, for tests that run it
#
#	vmapd                 OCI layout: an image for each processor, with the programs that vmapd runs
#	vmapd-ARCH            the programs
#	vmapd-chart.tgz       the Helm chart, for the image of this version
#	deploy                the manifests, and the base of kustomize
#	vmapd-ARCH.spdx.json  what an image is made of (SPDX 2.3)
#	images.txt            the image's name, version and digest, as a reference of a registry ends
#	SHA256SUMS            of all these files, in the form of sha256sum
#
# It needs bash, curl, dpkg-deb, Go, jq and GNU's tar and gzip, but neither Docker nor root nor a base image. Version and date
# are those that the go command wrote into the programs; Debian packages are those of packages.lock, by checksum. So the same
# commit gives the same bytes, anywhere and at any time.
set -euo pipefail
shopt -s inherit_errexit
umask 022
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
lock=${LOCK:-$here/packages.lock}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmapd-release
source=https://github.com/vmapd/vmapd
oci=application/vnd.oci.image
fail() { echo "release: $*" >&2; exit 1; }

# archive FOLDER DATE FILE... packs files so that the same ones make the same archive: all belong to root, and have the date.
archive() { tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner "--mtime=@$2" -C "$1" -c -- "${@:3}"; }

# fetch SUM PATH prints the file of a package, and downloads it unless the cache has it. The first mirror of the lock file
# that has it gives it; the last one is an archive of all times.
fetch() {
	local file=$cache/$1.deb mirror
	if ! sha256sum --status -c <<<"$1  $file" 2>/dev/null; then
		mkdir -p "$cache"
		for mirror in $(sed -n 's/^mirror //p' "$lock"); do
			curl -sSfL --max-time 300 -o "$file.$$" "$mirror/$2" || continue
			if sha256sum --status -c <<<"$1  $file.$$"; then
				mv "$file.$$" "$file" # a process that is killed leaves no half of a file
				break
			fi
			echo "release: $mirror/$2 has another checksum than packages.lock says" >&2
			rm "$file.$$"
		done
		[ -e "$file" ] || fail "can't get ${2##*/}"
	fi
	echo "$file"
}

# inspect PROGRAM PROCESSOR reads what the go command wrote into a program: version, commit, and date in seconds, 0 if unknown.
inspect() {
	info=$(go version -m -json "$1")
	version=$(jq -r '.Main.Version // "" | if . == "" or . == "(devel)" then "unknown" else sub("v0.0.0-"; "v0.1.0-dev.") end' <<<"$info")
	setting() { jq -r --arg key "$1" '[.Settings[]? | select(.Key == $key).Value][0] // ""' <<<"$info"; }
	commit=$(setting vcs.revision)
	date=$(setting vcs.time)
	date=$(date -u -d "${date:-1970-01-01}" +%s)
	[ "$(setting GOARCH)" = "$2" ] || fail "$1 is for $(setting GOARCH), not for $2"
	[ "$(setting CGO_ENABLED)" = 0 ] || fail "$1 is linked to libraries that images lack: build it with CGO_ENABLED=0"
	labels=$(jq -n --arg version "$version" --arg commit "${commit:-unknown}" --argjson date "$date" --arg source $source '{
		title: "vmapd", description: "Kubernetes Service proxy on nftables, iptables or IPVS", version: $version,
		revision: $commit, created: ($date | todate), source: $source, url: $source, licenses: "Apache-2.0"
	} | with_entries(.key |= "org.opencontainers.image." + .)')
}

# blob TYPE FILE puts a file into the layout, and prints its descriptor.
blob() {
	local sum
	sum=$(sha256sum <"$2")
	sum=${sum%% *}
	jq -nc --arg type "$oci.$1" --arg digest "sha256:$sum" --argjson size "$(stat -c %s "$2")" '{mediaType: $type, $size, $digest}'
	mv "$2" "$layout/blobs/sha256/$sum"
}

# layer FOLDER DATE puts the files of a folder into the layout, and adds them to $layers and $sums.
layer() {
	(cd "$1" && archive . "$2" *) >"$work/layer"
	sums=$(jq -c --arg sum "sha256:$(sha256sum <"$work/layer" | cut -d ' ' -f 1)" '. + [$sum]' <<<"$sums")
	gzip -n9 "$work/layer"
	layers=$(jq -c --argjson layer "$(blob layer.v1.tar+gzip "$work/layer.gz")" '. + [$layer]' <<<"$layers")
}

# base PROCESSOR FOLDER unpacks the packages of the lock file. Install scripts are not run: what they would make, and
# programs expect, is made here. The iptables of nf_tables has the plain names, as it has on Debian. What nobody reads in a
# container is left out; licences stay.
base() {
	local processor=$1 file sum path name
	mkdir "$2"
	cd "$2"
	mkdir -p usr/{bin,lib,lib64,sbin} usr/lib/modules run etc
	ln -s usr/{bin,lib,lib64,sbin} .
	mkdir -m 1777 tmp
	grep -q "^$processor " "$lock" || fail "packages.lock has nothing for $processor"
	while read -r _ _ _ sum path; do
		file=$(fetch "$sum" "$path")
		dpkg-deb --fsys-tarfile "$file" | tar -xp --no-same-owner --keep-directory-symlink
	done < <(grep "^$processor " "$lock")
	rm -rf usr/share/{man,locale,info,lintian,bash-completion,zsh,initramfs-tools}
	if [ -d usr/share/doc ]; then
		find usr/share/doc ! -type d ! -name copyright -delete
		find usr/share/doc -type d -empty -delete
	fi
	for name in {iptables,ip6tables}{,-save,-restore}; do ln -sf xtables-nft-multi "usr/sbin/$name"; done
	printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >etc/passwd
	printf 'root:x:0:\nnogroup:x:65534:\n' >etc/group
	cd "$OLDPWD"
}

# image PROCESSOR puts the image for a processor into the layout, and adds it to $images.
image() {
	local layers='[]' sums='[]' packaged config manifest
	packaged=$(date -u -d "$(sed -n 's/^date //p' "$lock")" +%s)
	base "$1" "$work/base"
	layer "$work/base" "$packaged"
	install -D -m 755 "$programs/vmapd-$1" "$work/own/usr/local/bin/vmapd"
	ln -s vmapd "$work/own/usr/local/bin/kube-proxy" # as kube-proxy's DaemonSet starts it
	layer "$work/own" "$date"
	rm -rf "$work/base" "$work/own"
	# The daemon needs CAP_NET_ADMIN. Kubernetes gives added capabilities to root alone: others would need them at the file,
	# which allowPrivilegeEscalation: false forbids. Commands that only read files run as anybody.
	jq -nc --arg processor "$1" --arg version "$version" --argjson date "$date" --argjson packaged "$packaged" \
		--argjson labels "$labels" --argjson sums "$sums" '{
		created: ($date | todate), architecture: $processor, os: "linux",
		config: {
			User: "0:0", Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
			Entrypoint: ["/usr/local/bin/vmapd"], Labels: $labels},
		rootfs: {type: "layers", diff_ids: $sums},
		history: [
			{created: ($packaged | todate), created_by: "Debian\u0027s packages of packages.lock"},
			{created: ($date | todate), created_by: ("vmapd " + $version)}]}' >"$work/config"
	config=$(blob config.v1+json "$work/config")
	jq -nc --arg type "$oci.manifest.v1+json" --argjson config "$config" --argjson layers "$layers" \
		'{schemaVersion: 2, mediaType: $type, $config, $layers}' >"$work/manifest"
	manifest=$(blob manifest.v1+json "$work/manifest")
	images=$(jq -c --argjson image "$manifest" --arg processor "$1" \
		'. + [$image + {platform: {os: "linux", architecture: $processor}}]' <<<"$images")
	bill "$1" "$(jq -r '.digest[7:]' <<<"$manifest")"
}

# bill PROCESSOR DIGEST writes what an image contains: the program's modules as the go command wrote them into it, the standard
# library, and Debian packages. By their "purl", scanners find vulnerabilities.
bill() {
	grep "^$1 " "$lock" | jq -Rn --argjson info "$info" --arg processor "$1" --arg digest "$2" --arg version "$version" \
		--argjson date "$date" --arg source $source '
	def purl: {externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: .}]};
	def gomodule: {name: .Path, versionInfo: .Version} + ("pkg:golang/\(.Path | split("/") | map(@uri) | join("/"))@\(.Version | @uri)" | purl) +
		(if .Sum then {comment: "go.sum: \(.Sum)"} else {} end); # of the files of the module, and no checksum of one file
	def relation($a; $kind; $b): {spdxElementId: $a, relationshipType: $kind, relatedSpdxElement: $b};
	([$info.Main + {Version: $version, Sum: null}, {Path: "stdlib", Version: $info.GoVersion}, ($info.Deps[]? | .Replace // .)]
		| map(gomodule)) as $modules
	| [inputs / " " | .[4] as $path | ($path | split("/") | last) as $file | {
		name: .[1], versionInfo: .[2], packageFileName: $file, checksums: [{algorithm: "SHA256", checksumValue: .[3]}]
		} + ("pkg:deb/debian/\(.[1] | @uri)@\(.[2] | @uri)?arch=\($file | rtrimstr(".deb") | split("_") | last)" | purl)] as $debs
	| ($modules + $debs | to_entries | map(.value + {downloadLocation: "NOASSERTION",
		SPDXID: ("SPDXRef-\(.key + 1)-\(.value.name)" | gsub("[^A-Za-z0-9.-]"; "-"))})) as $all
	| {
		spdxVersion: "SPDX-2.3", dataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", name: "vmapd-\($processor)",
		documentNamespace: "\($source)/spdx/vmapd-\($processor)-\($digest)",
		creationInfo: {creators: ["Tool: vmapd-release"], created: ($date | todate)},
		packages: ([{
			name: "vmapd", SPDXID: "SPDXRef-image", versionInfo: $version, downloadLocation: "NOASSERTION",
			primaryPackagePurpose: "CONTAINER", checksums: [{algorithm: "SHA256", checksumValue: $digest}],
			comment: "The checksum is the digest of the manifest of the image."}] + $all),
		relationships: ([relation("SPDXRef-DOCUMENT"; "DESCRIBES"; "SPDXRef-image")] + ($all | to_entries | map(
			relation(if .key > 0 and .key < ($modules | length) then $all[0].SPDXID else "SPDXRef-image" end; "CONTAINS"; .value.SPDXID))))
	}' >"$out/vmapd-$1.spdx.json"
}

# deploy writes the manifests for kubectl and kustomize, and the chart as "helm package" does. Links are followed. Only the
# chart has the program's version, which is the image's tag; without git, it is unchanged. Helm's own libraries would write the
# time of the packing into the archive.
deploy() {
	local deploy=$here/../../vmapd/deploy
	cp -rL "$deploy/chart" "$work/vmapd"
	chmod -R u=rwX,go=rX "$work/vmapd"
	if [ "$version" != unknown ]; then
		sed -i -e "s/^version: .*/version: ${version#v}/" -e "s/^appVersion: .*/appVersion: $version/" "$work/vmapd/Chart.yaml"
		test "$(grep -cxF -e "version: ${version#v}" -e "appVersion: $version" "$work/vmapd/Chart.yaml")" = 2
	fi
	archive "$work" "$date" vmapd | gzip -n9 >"$out/vmapd-chart.tgz"
	mkdir "$out/deploy"
	cd "$deploy"
	find . -path ./chart -prune -o '(' -name '*.yaml' -o -name '*.json' -o -name '*.sed' -o -name '*.sh' ')' \
		-exec cp -L --parents -t "$out/deploy" {} +
	cd "$OLDPWD"
}

make() {
	local programs images='[]' first='' index processor info version commit date labels
	programs=$(realpath "$1")
	out=$(realpath -m "$2")
	# Only a folder that this script made is deleted.
	[ -e "$out/SHA256SUMS" ] || [ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$2 is not empty, and has no SHA256SUMS of an earlier release"
	rm -rf "$out"
	layout=$out/vmapd
	mkdir -p "$layout/blobs/sha256"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	for processor in "${@:3}"; do
		inspect "$programs/vmapd-$processor" "$processor"
		first=${first:-$version $commit}
		[ "$version $commit" = "$first" ] || fail "vmapd-$processor is of $version $commit, and vmapd-$3 of $first"
		install -m 755 "$programs/vmapd-$processor" "$out"
		image "$processor"
	done
	# index.json has one entry, the index of the processors, by the name that tools look for.
	jq -nc --arg type "$oci.index.v1+json" --argjson images "$images" --argjson labels "$labels" \
		'{schemaVersion: 2, mediaType: $type, manifests: $images, annotations: $labels}' >"$work/index"
	index=$(blob index.v1+json "$work/index")
	jq -nc --arg type "$oci.index.v1+json" --argjson index "$index" --arg version "$version" '{schemaVersion: 2, mediaType: $type,
		manifests: [$index + {annotations: {"org.opencontainers.image.ref.name": $version}}]}' >"$layout/index.json"
	echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
	echo "vmapd:$version@$(jq -r .digest <<<"$index")" | tee "$out/images.txt"
	deploy
	cd "$out"
	find . -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum >"$work/sums"
	mv "$work/sums" SHA256SUMS
}

unpack() {
	local blobs=$1/blobs/sha256 digest image
	image='.manifests[] | select(.platform == null or .platform.architecture == $processor).digest[7:]'
	digest=$(jq -r --arg processor "$2" "$image" "$1/index.json")
	digest=$(jq -r --arg processor "$2" "$image" "$blobs/$digest")
	[ -n "$digest" ] || fail "$1 has no image for $2"
	mkdir -p "$3/root"
	cp "$blobs/$(jq -r '.config.digest[7:]' "$blobs/$digest")" "$3/config.json"
	for digest in $(jq -r '.layers[].digest[7:]' "$blobs/$digest"); do
		tar -xzp --no-same-owner -C "$3/root" -f "$blobs/$digest"
	done
}

"$@"
