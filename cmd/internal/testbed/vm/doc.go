// Command vm runs one command as root of an emulated machine that boots a stock kernel of
// Debian's, and returns its output and exit code. It is for tests that need kernel modules, or a
// kernel version, that the host does not have.
//
//	vm [flags] -- COMMAND [ARG]...
//
// It downloads the kernel, its modules and Debian packages once, from any of Debian's suites, unpacks
// them without running install scripts, and keeps them in a cache folder (remove it to refresh
// them). apt verifies the signature of each suite with the keys in the package
// debian-archive-keyring, so an old suite is as trustworthy as a new one, but may have expired: its
// date is not checked.
//
// Each run writes an initramfs:
//
//	/init       init.sh, by busybox; it mounts, loads modules, runs COMMAND, powers off
//	/sbin/modprobe  busybox, also for modules that the kernel requests
//	/vm         the job
//	the rest    packages, and the files given by --file
//
// and starts QEMU with the kernel's console and two virtio consoles: COMMAND's output, and one line with its exit code.
// QEMU emulates in software, so neither privilege nor KVM is needed; the guest is about 15 times slower than its host.
// --processor is amd64, arm64, or s390x, which is big-endian.
//
// With --here, COMMAND runs on this machine instead, and one program is that of the packages: so
// can another nft be tried without an emulated machine.
//
// Exit codes: COMMAND's (128 and the number of a signal that ended it); 124 if the time
// limit was reached; 125 if the command could not be run, and standard error has the reason.
package main
