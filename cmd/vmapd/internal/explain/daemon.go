package explain

import "fmt"

// Daemon compares the daemon's decision with the kernel and with the API server.
type Daemon struct {
	Pending int    // changes that wait for a sync
	Error   string // of the last sync
	// Objects is the conclusion by the objects as they are now, if it differs from the daemon's.
	Objects string
	// Kernel are the differences of the backend's rules from what the daemon wants, if there are any. NotCompared is the
	// reason if they mean nothing for this connection.
	Backend, Kernel, NotCompared string
}

// Compare adds the comparison to an explanation, as its last step.
func (e *Explanation) Compare(d Daemon) {
	s := Step{Text: "Source: the running daemon."}
	switch {
	case d.Kernel != "":
		s.Text += fmt.Sprintf(" The kernel differs (backend %s): %s.", d.Backend, d.Kernel)
		e.Conclusion += "; but the kernel differs from what the daemon wants"
		e.Next = append(e.Next, "Why does the kernel differ? vmapd doctor has all differences; vmapd trace follows one connection.")
	case d.NotCompared != "":
		s.Text += " The kernel was not compared: " + d.NotCompared + "."
	default:
		s.Text += fmt.Sprintf(" The kernel has the same (backend %s).", d.Backend)
	}
	if d.Objects != "" {
		s.Lines = append(s.Lines, "By the objects as they are now, the result is another one: "+d.Objects)
		if d.Error == "" && d.Kernel == "" {
			e.Next = append(e.Next, "Has the daemon heard of the change? vmapd doctor has the API server's last answer.")
		}
	}
	switch {
	case d.Error != "":
		s.Lines = append(s.Lines, "The last sync failed: "+d.Error)
	case d.Pending > 0:
		s.Lines = append(s.Lines, fmt.Sprintf("%d changes of Services and EndpointSlices are still to be programmed.", d.Pending))
	}
	e.Steps = append(e.Steps, s)
}
