// Package debian downloads packages of Debian's and unpacks them without running their install
// scripts, into a folder of downloads that several programs may share. apt does it without root.
package debian
