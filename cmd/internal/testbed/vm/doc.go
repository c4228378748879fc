// Command vm runs one command as root of an emulated machine that boots a stock kernel of
// Debian's, and gives back its output and exit code. It is for tests that need kernel
// modules, or a kernel version, which the machine at hand does not have.
//
//	vm [flags] -- COMMAND [ARG]...
//
// The kernel, its modules and the Debian packages asked for are downloaded once, unpacked
// without running install scripts, and kept in a cache folder (remove it to refresh them).
// Each run puts what it needs into an initramfs:
//
//	/init       this very program; it mounts, loads modules, runs COMMAND, powers off
//	/sbin/modprobe  this program too, for what the kernel loads by itself
//	/vm         modules with their catalog, and what to do
//	the rest    packages, and the files given by --file
//
// and starts QEMU with three serial ports: the kernel's console, COMMAND's output, and one
// line with its exit code. QEMU emulates in software, so no privilege is needed, nor a
// processor that can virtualize; the guest is about 15 times slower than its host.
//
// The program must be static, since it is all that the guest has to begin with. It is as
// long as nothing here imports package net or os/user.
//
// Exit codes: COMMAND's (128 and the number of a signal that ended it); 124 if the time
// limit was reached; 125 if the command could not be run, and standard error says why.
package main
