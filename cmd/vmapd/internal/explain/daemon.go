package explain

import (
	"fmt"
	"time"
)

// Daemon compares the daemon's decision with the kernel and with the API server.
type Daemon struct {
	Pending int    // changes that wait for a sync
	Error   string // of the last sync
	// Objects is the conclusion by the objects as they are now, if it differs from the daemon's.
	Objects string
	// Compared is what was compared. Kernel are its differences from what the daemon wants, if there are any, and
	// NotCompared is the reason if they mean nothing for this connection.
	Compared, Kernel, NotCompared string
	// Remembered is the kernel's session affinity for the client, if the Service has it; nil with IPVS.
	Remembered *Remembered
}

// Remembered is an endpoint to which a client comes back.
type Remembered struct {
	Endpoint string        // empty: the kernel remembers none
	Left     time.Duration // each connection begins the time anew
	Used     bool          // the endpoint still gets connections
}

func (r *Remembered) say() string {
	switch {
	case r.Endpoint == "":
		return "Session affinity: the kernel remembers no endpoint for this client; its next connection goes to any of them."
	case !r.Used:
		return fmt.Sprintf("Session affinity: the kernel remembers %s for this client, which gets no connections any more; "+
			"the next one goes to another endpoint.", r.Endpoint)
	}
	until := time.Now().Add(r.Left).UTC().Format("2006-01-02 15:04:05 UTC")
	return fmt.Sprintf("Session affinity: the kernel remembers %s for this client until %s, for another %v.", r.Endpoint, until, r.Left)
}

// Compare adds the comparison to an explanation, as its last step.
func (e *Explanation) Compare(d Daemon) {
	s := Step{Text: "Source: the running daemon."}
	switch {
	case d.Kernel != "":
		s.Text += fmt.Sprintf(" The kernel differs (compared: %s): %s.", d.Compared, d.Kernel)
		e.Conclusion += "; but the kernel differs from what the daemon wants"
		e.Next = append(e.Next, "Why does the kernel differ? vmapd doctor has all differences; vmapd trace follows one connection.")
	case d.NotCompared != "":
		s.Text += " The kernel was not compared: " + d.NotCompared + "."
	default:
		s.Text += fmt.Sprintf(" The kernel has the same (compared: %s).", d.Compared)
	}
	if d.Remembered != nil {
		s.Lines = append(s.Lines, d.Remembered.say())
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
