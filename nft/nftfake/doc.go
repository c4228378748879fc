// Package nftfake is an nf_tables kernel in memory, for tests.
//
//	nft/kernel ──netlink messages──> Socket ──> Kernel
//
// [Kernel.Dial] returns a connection that takes and gives the bytes that a netlink socket of
// Linux does, so that the same encoder and reader are at work in front of it. What Linux
// promises, it keeps:
//
//   - A batch is carried out as a whole or not at all, and not at all if it has no end. Each
//     message that fails is answered with an error about it, the others with nothing.
//   - Nothing refers to a chain or set that is not there (ENOENT), and what something refers
//     to can't be deleted (EBUSY): before Linux 6.2, a chain also if the batch deletes the
//     elements that refer to it.
//   - An element that is there can be added again, but not with other data (EEXIST).
//   - Each batch that changes something makes a generation. A list says if the generation
//     changed while it was read.
//   - A table that is owned takes orders from no other connection (EPERM). With its owner it
//     ends, or stays without one if it has the flag persist.
//   - Elements time out.
//
// It has no packets, and does not check what only matters to these: types of keys, loops of
// jumps, ranges that overlap. A rule is given back as it was written, where Linux adds what was
// implied. [Kernel.Fail] makes it fail as Linux can.
package nftfake
