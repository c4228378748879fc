# Functions of the bench's scripts for bash: packages of Debian's, which apt downloads and verifies without root, and which
# are unpacked without their install scripts, into folders that are kept in $cache. Remove it to download them anew.
set -euo pipefail
shopt -s inherit_errexit nullglob
export LC_ALL=C
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vmapd-vm
suite=bookworm # of programs that run on this machine or in images
mirror=http://deb.debian.org

# debian_architecture PROCESSOR prints Debian's name of a processor with a name of Go's.
debian_architecture() { echo "${1/ppc64le/ppc64el}"; }

# lists FOLDER SUITES ARCHITECTURE has apt use these suites alone, of which the last has priority, and keep its state in a
# folder. Nothing of the host's is read, and no package is installed there, so that apt downloads all dependencies.
#
# apt verifies each suite's signature with keys of debian-archive-keyring, and each package's checksum, also in a suite that
# is no longer maintained. The date until which a suite is valid is not checked: such a suite is not signed again then.
lists() {
	local keys=/usr/share/keyrings/debian-archive-keyring.gpg name
	[ -e $keys ] || { echo "missing: $keys, of Debian's package debian-archive-keyring" >&2; return 1; }
	mkdir -p "$1"/{state/lists/partial,cache/archives/partial}
	: >"$1/status"
	for name in ${2//,/ }; do
		case $name in *-security) echo "$mirror/debian-security $name" ;; *) echo "$mirror/debian $name" ;; esac
	done | sed "s|.*|deb [arch=$3 signed-by=$keys] & main|" >"$1/sources"
	export APT_CONFIG=$1/config
	cat >"$APT_CONFIG" <<-END
		Dir "$1/";
		Dir::Etc::main "/dev/null";
		Dir::Etc::parts "/dev/null";
		Dir::Etc::sourcelist "$1/sources";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "state";
		Dir::State::status "$1/status";
		Dir::Cache "cache";
		APT::Architecture "$3";
		APT::Architectures "$3";
		APT::Default-Release "${2##*,}";
		APT::Install-Recommends "false";
		APT::Sandbox::User "";
		Acquire::Check-Valid-Until "false";
		Acquire::Languages "none";
		Debug::NoLocking "true";
	END
	apt-get -qq -o APT::Update::Error-Mode=any update
}

# once NAME COMMAND... prints the path of a folder in the cache. If it is not there, the command fills it, as its folder.
once() {
	local dir=$cache/$1
	shift
	mkdir -p "${dir%/*}"
	exec 9>"$cache/lock"
	flock 9
	if [ ! -d "$dir" ]; then
		rm -rf "$dir.new" # of a process that was killed
		mkdir "$dir.new"
		(cd "$dir.new" && "$@") >&2
		mv "$dir.new" "$dir"
	fi
	exec 9>&-
	echo "$dir"
}

# packages SUITES ARCHITECTURE [NAME]... prints the folder with the files of packages and of all that they depend on.
packages() {
	local names
	[ $# -gt 2 ] || return 0
	names=$(printf '%s\n' "${@:3}" | sort | paste -sd ,)
	names=$(once "$1-$2/$names" download "$@")
	echo "$names/root"
}

download() {
	lists "$cache/$1-$2/apt" "$1" "$2"
	mkdir -p archives/partial
	apt-get -qq -y --download-only -o Dir::Cache::archives="$PWD/archives" install "${@:3}"
	unpack archives root
}

# unpack FOLDER ROOT unpacks the packages in a folder, and deletes them.
unpack() {
	local p
	for p in "$1"/*.deb; do
		dpkg-deb --extract "$p" "$2"
		rm "$p"
	done
	rm -rf "$2"/usr/share/{doc,man,locale,info,lintian,bash-completion,zsh}
}

# new_root ROOT [FOLDER]... makes the root folder of an image or a machine, with the files of unpacked packages and what
# Debian's install scripts would make. /bin, /sbin and /lib are links.
new_root() {
	local root=$1 name
	for name in bin sbin lib lib64; do
		mkdir -p "$root/usr/$name"
		ln -s "usr/$name" "$root/$name"
	done
	for name in "${@:2}"; do tar -C "$name" -c . | tar -C "$root" -x --keep-directory-symlink; done
	rm -rf "$root/var/run"
	mkdir -p "$root"/{etc,tmp,var/tmp,run,root,usr/lib/modules}
	ln -s /run "$root/var/run"
	chmod 1777 "$root/tmp" "$root/var/tmp"
	chmod 700 "$root/root"
	printf '%s\n' root:x:0:0:root:/root:/bin/sh nobody:x:65534:65534:nobody:/:/bin/false >"$root/etc/passwd"
	printf '%s\n' root:x:0: nogroup:x:65534: >"$root/etc/group"
	echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
}

# iptables_links ROOT VARIANT makes the links that an install script of iptables would, for the variant nft or legacy.
iptables_links() {
	local name
	for name in {iptables,ip6tables}{,-save,-restore}; do ln -sf "xtables-$2-multi" "$1/usr/sbin/$name"; done
}
