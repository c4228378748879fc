#!/bin/bash
# Runs one command as root of an emulated machine that boots a stock kernel of Debian's, and returns its output and exit
# code. It is for tests that need kernel modules, or a kernel version, that the host does not have.
#
#	vm.sh [flags] -- COMMAND [ARG]...
#
# It downloads the kernel, its modules and packages once (debian.sh), and makes an initramfs for each run:
#
#	/init           init.sh, by busybox; it mounts, loads modules, runs COMMAND, powers off
#	/sbin/modprobe  busybox, also for modules that the kernel requests
#	/vm             the job
#	the rest        packages, and the files given by --file
#
# QEMU has the kernel's console and two virtio consoles: COMMAND's output, and one line with its exit code. It emulates in
# software, so neither privilege nor KVM is needed; the guest is about 15 times slower than its host.
#
# With --here, COMMAND runs on this machine instead, and one program is that of the packages: so can another nft be tried
# without an emulated machine.
#
# Exit codes: COMMAND's (128 and the number of a signal that ended it); 124 if the time limit was reached; 125 if the command
# could not be run, and standard error has the reason.
shopt -s extglob
usage='usage: vm.sh [flags] -- COMMAND [ARG]...
  --processor NAME         amd64, arm64, or s390x, which is big-endian
  --suites LIST            Debian'"'"'s suites of the kernel; the last has priority (bookworm)
  --packages-suites LIST   those that the packages are from (those of the kernel)
  --packages LIST          Debian packages to unpack, with what they depend on
  --without LIST           modules that are left out, with those that need them
  --iptables VARIANT       what the commands of package iptables are: nft or legacy (nft)
  --file SRC:DST           a file or folder for the guest; may be repeated
  --dir FOLDER             of the guest in which COMMAND starts (/)
  --cpus NUMBER            of processors (2)
  --timeout DURATION       limit of the machine'"'"'s life, as for the program timeout (5m)
  --here PROGRAM           run COMMAND on this machine, where this program is that of the packages'
fail() { echo "vm: $*" >&2; exit 125; }

processor='' suites=bookworm tools='' packages='' without='' iptables=nft dir=/ cpus=2 limit=5m here='' files=()
while [[ ${1-} == --?* ]]; do
	[ $# -gt 1 ] || fail "$usage"
	case $1 in
	--processor) processor=$2 ;;
	--suites) suites=$2 ;;
	--packages-suites) tools=$2 ;;
	--packages) packages=$2 ;;
	--without) without=$2 ;;
	--iptables) iptables=$2 ;;
	--file) files+=("$(readlink -m "${2%%:*}"):${2#*:}") ;;
	--dir) dir=$2 ;;
	--cpus) cpus=$2 ;;
	--timeout) limit=$2 ;;
	--here) here=$2 ;;
	*) fail "$usage" ;;
	esac
	shift 2
done
[ "${1-}" = -- ] && [ $# -gt 1 ] || fail "$usage"
shift

folder=$(cd "$(dirname "$0")" && pwd)
trap 'rm -rf ${work:+"$work"}' EXIT
trap 'exit 125' ERR INT TERM HUP
. "$folder/../debian/debian.sh"
set -E
host=$(dpkg --print-architecture)
processor=${processor:-$host}
tools=$(packages "${tools:-$suites}" "$processor" ${packages//,/ })

# One program of the packages, started by the dynamic linker of its own C library.
if [ -n "$here" ]; then
	work=$(mktemp -d)
	linker=("$tools"/{usr/,}lib/*/ld*.so.[12]) program=("$tools"/{usr/,}{s,}bin/"$here")
	[ ${#linker[@]} -gt 0 ] && [ ${#program[@]} -gt 0 ] || fail "$here is in none of the packages $packages"
	triplet=$(basename "$(dirname "${linker[0]}")")
	printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
		"${linker[0]}" "$tools/usr/lib/$triplet:$tools/lib/$triplet" "${program[0]}" >"$work/$here"
	chmod +x "$work/$here"
	trap - ERR
	PATH=$work:$PATH timeout "$limit" "$@" && code=0 || code=$?
	exit $code
fi

# A later processor than these has more to emulate: with "max", a scenario took 13 s of computing instead of 8, and
# authenticating pointers takes an arm64 most of the time. The kernel's check of timers is for hardware, and fails if the
# host is busy meanwhile.
case $processor in
amd64)
	kernel=linux-image-cloud-amd64 qemu='qemu-system-x86_64 -cpu Nehalem -device isa-serial,chardev=console'
	options='console=ttyS0 no_timer_check'
	;;
arm64)
	kernel=linux-image-cloud-arm64 qemu='qemu-system-aarch64 -machine virt -cpu cortex-a72 -serial chardev:console'
	options=console=ttyAMA0
	;;
s390x)
	kernel=linux-image-s390x qemu='qemu-system-s390x -machine s390-ccw-virtio -cpu max -device sclpconsole,chardev=console'
	options=console=ttyS1
	;;
*) fail "--processor $processor: want amd64, arm64 or s390x" ;;
esac

# get_kernel fills a folder with vmlinuz and modules. Some of the packages that a kernel needs have no files but need
# others, and from 7.3 on the modules are apart.
get_kernel() {
	lists "$cache/$suites-$processor/apt" "$suites" "$processor"
	# shellcheck disable=SC2046 # several names
	apt-get -qq download $(apt-cache depends --important --recurse "$kernel" | grep -E '^linux-(image|binary|modules|base)-')
	unpack . root
	mv -T root/boot/vmlinuz-* root/usr/lib/modules/*/vmlinuz vmlinuz
	mv -T root/lib/modules/* root/usr/lib/modules/* modules
	rm -r root
	# From 6.12 on modules are packed; the kernel could unpack them itself, but slowly.
	find modules -name '*.ko.xz' -exec xz --decompress {} +
}
kernel=$(once "$suites-$processor/$kernel" get_kernel)
loader=$(packages "${suites}" "$processor" busybox-static) # of the guest
busybox=$(packages "$suite" "$host" busybox-static)/bin/busybox

mkdir -p "$cache"
work=$(mktemp -d "$cache/guest-XXXXXX")
cd "$work"
new_root root ${tools:+"$tools"} "$loader"
if [ -e "root/usr/sbin/xtables-$iptables-multi" ]; then iptables_links root "$iptables"; fi
for f in "${files[@]}"; do
	target=root${f#*:}
	mkdir -p "$(dirname "$target")"
	rm -rf "$target"
	cp -rH --preserve=mode -- "${f%%:*}" "$target"
done
cp "$folder/init.sh" root/init
chmod 755 root/init
ln -sf ../bin/busybox root/usr/sbin/modprobe
mkdir -p root/vm
{
	printf "cd '%s' || end 'error enter the folder of the command'\nset --" "$dir"
	for arg; do printf " '%s'" "${arg//\'/\'\\\'\'}"; done
	echo
} >root/vm/job
printf '127.0.0.1 localhost\n::1 localhost\n' >root/etc/hosts
version=0.0.0 # of the guest's modules, as depmod wants one; a link has the version of the kernel
cp -rl "$kernel/modules" "root/usr/lib/modules/$version"
for name in ${without//,/ }; do # the name of a module's file may have hyphens
	find "root/usr/lib/modules/$version" -name "${name//[-_]/[-_]}.ko" -print -delete | grep . >&2 ||
		fail "leave out module $name: this kernel does not have it, or can't do without it"
done
# The format is "newc" (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst). All belongs to root.
"$busybox" depmod -b root $version
(cd root && find . | "$busybox" cpio -o -H newc -R 0:0 2>/dev/null) >initrd

# The ports of the guest are /dev/hvc0 and /dev/hvc1, in this order. The output goes through a pipe: QEMU would empty a file.
# shellcheck disable=SC2086 # several arguments
timeout --foreground "$limit" $qemu -nodefaults -no-user-config -display none -no-reboot \
	-accel tcg,thread=multi -smp "$cpus" -m 2048 -kernel "$kernel/vmlinuz" -initrd initrd \
	-append "$options loglevel=5 panic=-1 oops=panic mitigations=off" \
	-chardev file,id=console,path=console -chardev file,id=output,path=/dev/fd/1 -chardev file,id=result,path=result \
	-device virtio-serial -device virtconsole,chardev=output -device virtconsole,chardev=result 2>complaints | cat && code=0 || code=$?
result=$(tr -d '\r' <result || true)
case $code:$result in
*:'exit '+([0-9])) code=${result#exit } ;;
*:'error '*) code=125 && echo "vm: ${result#error }" >&2 ;;
124:*) echo "vm: time limit reached after $limit" >&2 ;;
*) code=125 && echo "vm: the machine stopped before the command ended: $(<complaints)" >&2 ;;
esac
[ "$code" = 0 ] || sed 's/^/vm: console: /' console >&2
trap - ERR
exit "$code"
