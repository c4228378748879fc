// Command release makes what is published of a version, from programs that are built already:
//
//	release --programs bin --out bin/release
//
//	vmapd                 OCI layout: an image for each processor, with the programs that vmapd runs
//	vmapd-ARCH            the programs
//	vmapd-chart.tgz       the Helm chart, for the image of this version
//	deploy                the manifests, and the base of kustomize
//	vmapd-ARCH.spdx.json  what an image is made of (SPDX 2.3)
//	SHA256SUMS            of all these files
//
// With --unpack, it writes an image of such a layout as files and its configuration, for tests that run it.
//
// It needs bash, curl, dpkg-deb and GNU tar, but neither Docker nor root nor a base image. Version and date are those
// that the go command wrote into the programs; Debian packages are those of packages.lock, by checksum. So the same
// commit gives the same bytes, anywhere and at any time.
//
// It is a module of its own: what it needs is none of vmapd's business.
package main
