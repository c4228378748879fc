// Package files notices changes to files: when they are written in place or replaced,
// when their folders come and go, and when the kubelet swaps a ConfigMap's links.
//
// It watches folders, as most files are replaced rather than written, and it does not
// know what is in them: after each change, its user reads everything again and names the
// folders to watch from then on.
//
//	for {
//		f.Add(...) // each folder, before it is read
//		...        // read
//		if !f.Next(ctx, 0) {
//			return
//		}
//	}
package files
