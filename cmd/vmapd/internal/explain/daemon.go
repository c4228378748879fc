package explain

import "fmt"

// Daemon compares the daemon's decision with the kernel and with the API server.
type Daemon struct {
	Pending int    // changes that wait for a sync
	Error   string // of the last sync
	// Objects is the conclusion by the objects as they are now, if it differs from the daemon's.
	Objects string
	// Kernel are the differences of the backend's rules from what the daemon wants, if there are any. NotCompared is
	// the reason if they mean nothing for this connection.
	Backend, Kernel, NotCompared string
}

// kernelDiffers is the end of a conclusion that the kernel's rules do not have.
const kernelDiffers = "; but the kernel differs from what the daemon wants"

// Compare adds the comparison to an explanation, as its last step.
func (e *Explanation) Compare(d Daemon) {
	x := explainer{e: *e}
	source := fmt.Sprintf("The kernel has the same (backend %s).", d.Backend)
	switch {
	case d.Kernel != "":
		source = fmt.Sprintf("The kernel differs (backend %s): %s.", d.Backend, d.Kernel)
		x.e.Conclusion += kernelDiffers
		x.next("Why does the kernel differ? vmapd doctor has all differences; vmapd trace follows one connection.")
	case d.NotCompared != "":
		source = "The kernel was not compared: " + d.NotCompared + "."
	}
	if d.Objects != "" {
		x.line("By the objects as they are now, the result is another one: %s", d.Objects)
		if d.Error == "" && d.Kernel == "" {
			x.next("Has the daemon heard of the change? vmapd doctor has the API server's last answer.")
		}
	}
	switch {
	case d.Error != "":
		x.line("The last sync failed: %s", d.Error)
	case d.Pending > 0:
		x.line("%d changes of Services and EndpointSlices are still to be programmed.", d.Pending)
	}
	x.step("Source: the running daemon. %s", source)
	*e = x.e
}
