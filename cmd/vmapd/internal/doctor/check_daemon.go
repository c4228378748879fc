package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
)

func (d *Daemon) running(l *found) {
	l.good("runs with %s on node %s, since %s", d.Wants.Backend, d.Wants.NodeName,
		report.Age(d.Started, d.Health.At))
}

func (d *Daemon) configuration(l *found) {
	if d.ConfigError != "" {
		l.warn("correct the file", "the last change is refused, and the one before stays: %s", d.ConfigError)
	}
	l.otherwise("valid, and in force")
}

const wantPrivilege = "give the container the capability NET_ADMIN, and run it in the host's network namespace"

func (d *Daemon) privilege(l *found) {
	switch {
	case d.NetAdmin:
		return
	case d.Wants.Backend == "userspace":
		l.warn(wantPrivilege, "the daemon lacks CAP_NET_ADMIN: with the backend userspace, "+
			"it serves only addresses that the node has")
	default:
		l.fail(wantPrivilege, "the daemon lacks CAP_NET_ADMIN: it can't change rules")
	}
}

func (d *Daemon) kernel(l *found) {
	l.good("the daemon uses %s: %s", d.Wants.Backend, d.Why)
}

func (d *Daemon) apiServer(l *found) {
	c := d.Cluster
	if c == nil {
		l.good("none is used: manifests are read from files")
		return
	}
	heard := "no answer yet"
	if !c.Heard.IsZero() {
		heard = fmt.Sprintf("last answer %s ago", report.Age(c.Heard, d.Health.At))
	}
	for _, group := range byCause(c.Failing) {
		var kinds []string
		first := group[0]
		for _, e := range group {
			kinds = append(kinds, e.Resource)
			if e.Since.Before(first.Since) {
				first.Since = e.Since
			}
		}
		fix := "check that the API server runs, and that this node reaches it; "
		switch {
		case first.Remedy != "":
			fix = first.Remedy
		case len(c.Unread) > 0:
			fix += "nothing is programmed until they have been read, and earlier rules stay"
		default:
			fix += "meanwhile, the last known Services and endpoints stay"
		}
		l.fail(fix, "%s can't be read from %s for %s (%s): %v", strings.Join(kinds, ", "), c.Address,
			report.Age(first.Since, d.Health.At), heard, first.Err)
	}
	switch {
	case len(c.Failing) > 0:
	case c.Heard.IsZero():
		l.warn("wait; if that lasts, check the address and the network to it", "%s: %s", c.Address, heard)
	case len(c.Unread) > 0:
		l.warn("wait; after ten seconds this line has what is missing", "%s: %s; %s have not been read yet",
			c.Address, heard, strings.Join(c.Unread, ", "))
	default:
		l.good("%s: %s, all kinds of objects are read", c.Address, heard)
	}
}

// byCause returns failures in groups with the same text and the same remedy, but for the names of the kinds:
// the same cause usually affects all. Their errors lack the path, which the kind has.
func byCause(failures []informer.Failure) (groups [][]informer.Failure) {
	at := map[string]int{}
	for _, f := range failures {
		if request, ok := errors.AsType[*url.Error](f.Err); ok {
			f.Err = request.Err
		}
		cause := strings.ReplaceAll(f.Err.Error()+f.Remedy, f.Resource, "")
		i, ok := at[cause]
		if !ok {
			i, at[cause] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// tolerableSkew is a difference of clocks that does not matter. Certificates and tokens fail from
// minutes on, and latencies are measured wrongly from seconds on.
const tolerableSkew = 30 * time.Second

func (d *Daemon) clock(l *found) {
	if d.Cluster == nil || d.Cluster.Heard.IsZero() {
		return
	}
	skew, where := d.Cluster.Skew, "behind"
	if skew < 0 {
		where = "ahead of"
	}
	if skew.Abs() >= tolerableSkew {
		l.warn("synchronize clocks (NTP): certificates and tokens are refused, and latencies in metrics are wrong",
			"this node's is %s %s the API server's", duration.HumanDuration(skew.Abs()), where)
	}
	l.otherwise("within seconds of the API server's")
}

func (d *Daemon) node(l *found) {
	if d.Cluster == nil {
		return
	}
	others := func(a netip.Addr) bool { return !slices.Contains(d.HostAddrs, a) }
	const noTraffic = "/healthz answers 503, so that load balancers send no new connections"
	name, addrs := d.Wants.NodeName, d.NodeObject.Addrs
	switch {
	case d.NodeUnread:
		l.warn("see the line about the API server",
			"not known yet: it has not been read whether the cluster has a Node %q", name)
	case !d.Node.Known && d.Health.NoNode != "":
		l.fail("set --hostname-override to the Node's name (kubectl get nodes), or register the Node",
			"the cluster has no Node %q: no endpoint is local, and the Node's addresses, pod ranges and zone "+
				"are not known", name)
	case !d.Node.Known:
		l.fail("register the Node again (restart the kubelet), or drain the machine",
			"the Node %q is deleted: %s; the last known addresses stay in use", name, noTraffic)
	case d.Node.Why != "":
		l.warn("nothing, if the node is being removed; otherwise remove the taint, or let the kubelet report "+
			"the Node's addresses", "the Node %q %s: %s", name, d.Node.Why, noTraffic)
	case len(addrs) == 0:
		l.warn("let the kubelet, or the cloud controller, report status.addresses",
			"the Node %q has no address", name)
	case len(d.HostAddrs) > 0 && len(slices.DeleteFunc(slices.Clone(addrs), others)) == 0:
		l.fail("set --hostname-override to the name of this machine's Node; in a pod, use hostNetwork: true",
			"no interface of this machine has an address of the Node %q (%s): it is another machine's", name,
			report.List(addrs, 0))
	default:
		l.good("%s, %s", name, report.List(addrs, 0))
	}
}

// podRanges compares --cluster-cidr with the addresses that pods of this node have or, without pods that Services use,
// with the Node's pod ranges. A network plugin may ignore the latter, so the former decide.
func (d *Daemon) podRanges(l *found) {
	if d.Pods.Mode != model.ByClusterCIDR || len(d.Pods.ClusterCIDRs) == 0 {
		return // pods are not distinguished from other clients, or otherwise
	}
	const fix = "set --cluster-cidr (clusterCIDR) to the ranges of pods in the whole cluster, as the network plugin " +
		"and the controller manager have it"
	const consequence = "connections of pods are treated as external: they are masqueraded, " +
		"and internal ones may be refused"
	for _, family := range model.Families {
		ranges := slices.DeleteFunc(slices.Clone(d.Pods.ClusterCIDRs), func(r netip.Prefix) bool {
			return model.FamilyOf(r.Addr()) != family
		})
		pods := slices.DeleteFunc(slices.Clone(d.Wants.LocalPods), func(a netip.Addr) bool {
			return model.FamilyOf(a) != family
		})
		inside := slices.ContainsFunc(pods, func(a netip.Addr) bool {
			return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
		})
		if len(ranges) == 0 || inside {
			continue
		}
		if len(pods) > 0 {
			l.fail(fix, "--cluster-cidr %s has none of the pods on this node, such as %v: %s",
				report.List(ranges, 0), pods[0], consequence)
			continue
		}
		for _, p := range d.NodeObject.PodCIDRs {
			if model.FamilyOf(p.Addr()) == family && !slices.ContainsFunc(ranges, p.Overlaps) {
				l.warn(fix, "--cluster-cidr %s does not contain %v, the Node's spec.podCIDRs: %s",
					report.List(ranges, 0), p, consequence)
			}
		}
	}
	l.otherwise("--cluster-cidr %s", report.List(d.Pods.ClusterCIDRs, 0))
}

func (d *Daemon) sync(l *found) {
	var fine []string
	for _, f := range model.Families {
		r, waits := d.Health.Families[f], report.Age(d.Health.Families[f].Waiting, d.Health.At)
		switch {
		case r.LastError != "":
			text := fmt.Sprintf("%v: the last sync failed", f)
			if waits != "" {
				text += "; changes wait for " + waits
			}
			fix := "the error names the cause; vmapd tries again, at least each 30 s"
			if strings.Contains(r.LastError, "owned by another process") {
				fix = "end the other vmapd on this node (kubectl -n kube-system get pods -o wide, and systemctl): " +
					"two must not program the same tables"
			}
			l.fail(fix, "%s: %s", text, r.LastError)
		case r.Synced.IsZero():
			l.fail("see the lines about the API server", "%v: nothing is programmed yet", f)
		case !r.Healthy:
			l.fail("look for a busy processor, and read the log", "%v: a change waits for %s", f, waits)
		default:
			fine = append(fine, fmt.Sprintf("%v %s ago", f, report.Age(r.Synced, d.Health.At)))
		}
	}
	text := "last sync succeeded: " + strings.Join(fine, ", ")
	if d.Pending > 0 {
		text += fmt.Sprintf("; %d changes are pending", d.Pending)
	}
	l.otherwise("%s", text)
}

// Compared returns the lines about a comparison of the kernel's rules with those of the Services: a few of count
// differences, and the errors of reading.
func Compared(backend string, differences []string, count int, errs []error) []report.Line {
	var l found
	if count > 0 {
		fix := "wait for --iptables-sync-period, after which vmapd compares and repairs; if the line stays, " +
			"keep the output for a report"
		if backend == "nftables" {
			fix = "restart vmapd, which compares and repairs at its start; keep the output for a report"
		}
		l.fail(fix, "the kernel's rules differ from the expected ones in %d operations, such as: %s",
			count, strings.Join(differences, "; "))
	}
	for _, err := range errs {
		l.warn("the error names the cause", "can't be compared: %v", err)
	}
	l.otherwise("the kernel has exactly the expected rules")
	return l
}

// NotCompared returns the line about a comparison that was not made.
func NotCompared(why string) []report.Line {
	return []report.Line{{Level: report.OK, Text: "not compared: " + why}}
}

func (d *Daemon) otherProxies(l *found) {
	for _, text := range d.OtherProxies {
		l.fail("end the other proxy: delete its DaemonSet, or keep it from this node "+
			"(cmd/vmapd/docs/from-kube-proxy.md)", "%s", text)
	}
	if d.Leftovers != "" {
		l.warn("vmapd removes them; if they stay, the log has the reason",
			"rules that another proxy left: %s", d.Leftovers)
	}
	unexamined(d.Unexamined, l)
	l.otherwise("no other Service proxy detected")
}

// unexamined warns of leftovers that may be there.
func unexamined(kinds []string, l *found) {
	if len(kinds) > 0 {
		l.warn("give vmapd CAP_NET_ADMIN and the programs of iptables-legacy; the log has the reason",
			"what another proxy left is unknown: %s could not be examined", strings.Join(kinds, ", "))
	}
}

func (d *Daemon) ports(l *found) {
	for _, err := range d.Ports {
		l.warn("end the process that has the port (ss -ltnp), or change --healthz-bind-address or "+
			"--metrics-bind-address; Services work without", "%v", err)
	}
	l.otherwise("none of the daemon's ports is in use by another process")
}

func (d *Daemon) retry(l *found) {
	switch {
	case d.NoRetry:
		l.warn("a kernel that has it, or --connection-retry=false", "%s", d.Retry)
	case d.Retry != "":
		l.good("%s", d.Retry)
	}
}

func (d *Daemon) fastPath(l *found) {
	switch {
	case d.NoFastPath:
		l.warn("--fast-path=off, a kernel that has it, or names of devices that can", "%s", d.FastPath)
	case d.FastPath != "":
		l.good("%s", d.FastPath)
	}
}
