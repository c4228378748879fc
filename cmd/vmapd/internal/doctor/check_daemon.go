package doctor

import (
	"fmt"
	"strings"
	"time"
)

// ago returns a time before another as text; it is never negative.
func (f Facts) ago(t time.Time) string { return span(f.At.Sub(t)) + " ago" }

// span returns a duration for people.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func checkDaemon(f Facts) []Line {
	const alone = "The other lines are about the node alone"
	switch {
	case f.Daemon == nil && f.Hangs:
		return bad(Fail, f.NoDaemon, "read its log (kubectl -n kube-system logs), and restart it if it hangs. "+alone)
	case f.Daemon == nil:
		return bad(Fail, f.NoDaemon, "start it, or read the log of the one that should run (kubectl -n kube-system logs): "+
			"existing rules keep working but are not updated. "+alone)
	}
	text := "runs"
	if f.Wants.Backend != "" {
		text += " with " + f.Wants.Backend
	}
	if f.Wants.NodeName != "" {
		text += " on node " + f.Wants.NodeName
	}
	return good(fmt.Sprintf("%s, since %s", text, span(f.At.Sub(f.Daemon.Started))))
}

func checkConfiguration(f Facts) []Line {
	switch {
	case f.ConfigError != "":
		return bad(Fail, "the daemon would not start with this configuration: "+f.ConfigError, "correct the flag or the field")
	case f.Daemon == nil:
		return nil
	case f.Daemon.ConfigError != "":
		return bad(Warn, "the last change is refused, and the one before stays: "+f.Daemon.ConfigError, "correct the file")
	}
	return good("valid, and in force")
}

func checkVersion(f Facts) []Line {
	text := "vmapd " + f.Version
	if f.Host.Kernel != "" {
		text += ", Linux " + f.Host.Kernel
	}
	if f.Daemon == nil {
		return good(text)
	}
	if c := f.Daemon.Cluster; c != nil && c.Server != "" {
		text += ", API server " + c.Server
		if l := skew(c.Server); l != nil {
			return l
		}
	}
	if f.Daemon.Version != f.Version {
		return bad(Warn, fmt.Sprintf("the daemon is %s, and this program %s", f.Daemon.Version, f.Version),
			"use the program of the daemon's image: kubectl exec into vmapd's pod on this node")
	}
	return good(text)
}

// The minor versions of Kubernetes with which this version of vmapd may run.
const (
	// oldestServer is the first that has EndpointSlices in discovery.k8s.io/v1.
	oldestServer = 21
	// testedServer is the newest whose kube-proxy vmapd was compared with. A
	// kube-proxy may be three minor versions older than the API server, and not more:
	// https://kubernetes.io/releases/version-skew-policy/#kube-proxy
	testedServer = 37
	newestServer = testedServer + 3
)

// skew returns the line about a version of an API server that does not fit. A version in another form is
// left alone.
func skew(server string) []Line {
	var major, minor int
	if _, err := fmt.Sscanf(server, "v%d.%d", &major, &minor); err != nil || major != 1 {
		return nil
	}
	switch {
	case minor < oldestServer:
		return bad(Fail, fmt.Sprintf("the API server is %s, and vmapd needs 1.%d or newer, with EndpointSlices of discovery.k8s.io/v1", server, oldestServer),
			"update the cluster, or keep its kube-proxy")
	case minor > newestServer:
		return bad(Warn, fmt.Sprintf("the API server is %s, and this vmapd knows Kubernetes up to 1.%d: like kube-proxy, it may be three minor versions older, and not more", server, testedServer),
			"use a newer version of vmapd")
	}
	return nil
}

func checkPrivilege(f Facts) []Line {
	const remedy = "give the container the capability NET_ADMIN, and run it in the host's network namespace"
	switch {
	case f.Wants.Backend == "userspace" && f.Daemon != nil && !f.Daemon.NetAdmin:
		return bad(Warn, "the daemon lacks CAP_NET_ADMIN: with the backend userspace, it serves only addresses that the node has", remedy)
	case f.Daemon != nil && !f.Daemon.NetAdmin:
		return bad(Fail, "the daemon lacks CAP_NET_ADMIN: it can't change rules", remedy)
	case !f.Host.NetAdmin:
		return bad(Warn, "this process lacks CAP_NET_ADMIN: the rules of other programs can't be read, and a daemon with the same rights could not start", remedy)
	}
	return good("CAP_NET_ADMIN")
}

// checkKernel says which backend works on this kernel, and why or, without a daemon, what the configured one lacks.
func checkKernel(f Facts) []Line {
	b := f.Wants.Backend
	switch {
	case len(f.Host.NoPrograms) > 0:
		return bad(Fail, "programs that the backend "+b+" runs are not installed: "+strings.Join(f.Host.NoPrograms, ", "),
			"vmapd's image has them; on a host, install them, or use --backend=auto")
	case f.Daemon == nil || b == "":
		return nil
	}
	return good(fmt.Sprintf("the daemon uses %s: %s", b, oneLine(f.Daemon.Why)))
}

func checkAPIServer(f Facts) []Line {
	if f.Daemon == nil {
		return nil
	}
	c := f.Daemon.Cluster
	if c == nil {
		return good("none is used: manifests are read from files")
	}
	heard := "no answer yet"
	if !c.Heard.IsZero() {
		heard = "last answer " + f.ago(c.Heard)
	}
	if len(c.Errors) == 0 {
		if c.Heard.IsZero() {
			return bad(Warn, fmt.Sprintf("%s: %s", c.Address, heard), "wait; if that lasts, check the address and the network to it")
		}
		if len(c.Unread) > 0 {
			return bad(Warn, fmt.Sprintf("%s: %s; %s have not been read yet", c.Address, heard, strings.Join(c.Unread, ", ")),
				"wait; after ten seconds this line has what is missing")
		}
		return good(fmt.Sprintf("%s: %s, all kinds of objects are read", c.Address, heard))
	}
	var lines []Line
	for _, group := range byCause(c.Errors) {
		first := group[0]
		var kinds []string
		for _, e := range group {
			kinds = append(kinds, e.Resource)
			if e.Since.Before(first.Since) {
				first.Since = e.Since
			}
		}
		remedy := first.Remedy
		if remedy == "" {
			remedy = "check that the API server runs, and that this node reaches it; meanwhile, the last known Services and endpoints stay"
			if len(c.Unread) > 0 {
				remedy = "check that the API server runs, and that this node reaches it; nothing is programmed until they have been read, and earlier rules stay"
			}
		}
		lines = append(lines, Line{Level: Fail, Remedy: remedy, Evidence: fmt.Sprintf("%s can't be read from %s for %s (%s): %s",
			strings.Join(kinds, ", "), c.Address, span(f.At.Sub(first.Since)), heard, oneLine(first.Error))})
	}
	return lines
}

// byCause returns errors in groups with the same text and the same remedy, but for the names of the kinds:
// the same cause usually affects all.
func byCause(errs []APIError) (groups [][]APIError) {
	type cause struct{ text, remedy string }
	at := map[cause]int{}
	for _, e := range errs {
		c := cause{strings.ReplaceAll(e.Error, e.Resource, ""), strings.ReplaceAll(e.Remedy, e.Resource, "")}
		if i, ok := at[c]; ok {
			groups[i] = append(groups[i], e)
			continue
		}
		at[c] = len(groups)
		groups = append(groups, []APIError{e})
	}
	return groups
}

// tolerableSkew is a difference of clocks that does not matter. Certificates and tokens fail from
// minutes on, and latencies are measured wrongly from seconds on.
const tolerableSkew = 30 * time.Second

func checkClock(f Facts) []Line {
	if f.Daemon == nil || f.Daemon.Cluster == nil || !f.Daemon.Cluster.Skewed {
		return nil
	}
	skew := f.Daemon.Cluster.Skew
	if skew.Abs() < tolerableSkew {
		return good("within seconds of the API server's")
	}
	where := "behind"
	if skew < 0 {
		where = "ahead of"
	}
	return bad(Warn, fmt.Sprintf("this node's is %s %s the API server's", span(skew.Abs()), where),
		"synchronize clocks (NTP): certificates and tokens are refused, and latencies in metrics are wrong")
}

func checkFastPath(f Facts) []Line {
	switch {
	case f.Daemon == nil || f.Daemon.FastPath == "":
		return nil
	case f.Daemon.NoFastPath:
		return bad(Warn, f.Daemon.FastPath, "--fast-path=off, a kernel that has it, or names of devices that can")
	}
	return good(f.Daemon.FastPath)
}
