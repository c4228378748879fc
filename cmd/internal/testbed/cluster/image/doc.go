// Package image writes the container images that a cluster of the test bench needs, as archives
// for "ctr images import". Neither a registry nor a container engine takes part: an image is one
// layer, made of programs of a Kubernetes release, of vmapd, and of Debian packages, which are
// unpacked without their install scripts.
//
// Programs of the host are not used: an image would need them installed, and would be another
// one on each host. The images that Kubernetes' own tests ask for have the names that
// "e2e.test --list-images" prints, so the tests find them on the node and pull nothing. What is
// in them follows the originals: the small programs of agnhost are busybox's, its nc is OpenBSD's.
// Only the shell is dash, because Debian's busybox prefers its own nc to the one in the PATH.
package image
