package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
)

func (f *Facts) daemon(l *found) {
	fix := "start it, or read the log of the one that should run (kubectl -n kube-system logs): " +
		"existing rules keep working but are not updated"
	switch {
	case f.NoDaemon == nil:
		l.good("runs with %s on node %s, since %s", f.Wants.Backend, f.Wants.NodeName,
			report.Age(f.Daemon.Started, f.At))
		return
	case errors.Is(f.NoDaemon, fs.ErrPermission):
		fix = "run this as root"
	case f.Other != "":
		fix = f.Other
	case !errors.Is(f.NoDaemon, socket.ErrNoDaemon):
		fix = "read its log (kubectl -n kube-system logs), and restart it if it hangs"
	}
	l.fail(fix+". The other lines are about the node alone", "%v", f.NoDaemon)
}

func (f *Facts) configuration(l *found) {
	switch {
	case f.ConfigError == "" && f.Daemon != nil:
		l.good("valid, and in force")
	case f.ConfigError == "":
	case f.Daemon != nil:
		l.warn("correct the file", "the last change is refused, and the one before stays: %s", f.ConfigError)
	default:
		l.fail("correct the flag or the field",
			"the daemon would not start with this configuration: %s", f.ConfigError)
	}
}

func (f *Facts) limits(l *found) {
	if over := f.Daemon.OverLimit; len(over) > 0 {
		l.fail("split them (vmapd status SERVICE has the problem, the page Configuration the limits)",
			"served in part, because they are over the limits of one Service: %s", report.List(over, 3))
	}
	l.otherwise("no Service is over a limit")
}

func (f *Facts) version(l *found) { l.good("vmapd %s, Linux %s", f.Version, f.Host.Kernel) }

const wantPrivilege = "give the container the capability NET_ADMIN, and run it in the host's network namespace"

func (f *Facts) privilege(l *found) {
	switch {
	case f.Host.NetAdmin:
		l.good("CAP_NET_ADMIN")
	case f.Daemon == nil:
		l.warn(wantPrivilege, "this process lacks CAP_NET_ADMIN: the rules of other programs can't be read, "+
			"and a daemon with the same rights could not start")
	case f.Wants.Backend == userspace:
		l.warn(wantPrivilege, "the daemon lacks CAP_NET_ADMIN: with the backend userspace, "+
			"it serves only addresses that the node has")
	default:
		l.fail(wantPrivilege, "the daemon lacks CAP_NET_ADMIN: it can't change rules")
	}
}

// kernel says why the daemon uses its backend or, without a daemon, what the configured one lacks.
func (f *Facts) kernel(l *found) {
	switch {
	case f.Daemon != nil:
		l.good("the daemon uses %s: %s", f.Wants.Backend, f.Daemon.Why)
	case len(f.NoPrograms) > 0:
		l.fail("vmapd's image has them; on a host, install them, or use --backend=auto",
			"programs that the backend %s runs are not installed: %s", f.Wants.Backend, strings.Join(f.NoPrograms, ", "))
	}
}

func (f *Facts) apiServer(l *found) {
	c := f.Daemon.Cluster
	if c == nil {
		l.good("none is used: manifests are read from files")
		return
	}
	heard := "no answer yet"
	if !c.Heard.IsZero() {
		heard = fmt.Sprintf("last answer %s ago", report.Age(c.Heard, f.At))
	}
	switch {
	case len(c.Failing) > 0: // usually for one cause: that of the first failure
		first := slices.MinFunc(c.Failing, func(a, b informer.Failure) int { return a.Since.Compare(b.Since) })
		var kinds []string
		for _, e := range c.Failing {
			kinds = append(kinds, e.Resource)
		}
		if request, ok := errors.AsType[*url.Error](first.Err); ok {
			first.Err = request.Err // without the path, which the kind has
		}
		stays := "meanwhile, the last known Services and endpoints stay"
		if len(c.Unread) > 0 {
			stays = "nothing is programmed until they have been read, and earlier rules stay"
		}
		l.fail(cmp.Or(first.Remedy, "check that the API server runs, and that this node reaches it; "+stays),
			"%s can't be read from %s for %s (%s): %v", strings.Join(kinds, ", "), c.Address,
			report.Age(first.Since, f.At), heard, first.Err)
	case c.Heard.IsZero():
		l.warn("wait; if that lasts, check the address and the network to it", "%s: %s", c.Address, heard)
	case len(c.Unread) > 0:
		l.warn("wait; after ten seconds this line has what is missing", "%s: %s; %s have not been read yet",
			c.Address, heard, strings.Join(c.Unread, ", "))
	default:
		l.good("%s: %s, all kinds of objects are read", c.Address, heard)
	}
}

// tolerableSkew is a difference of clocks that does not matter. Certificates and tokens fail from
// minutes on, and latencies are measured wrongly from seconds on.
const tolerableSkew = 30 * time.Second

func (f *Facts) clock(l *found) {
	c := f.Daemon.Cluster
	if c == nil || c.Heard.IsZero() {
		return
	}
	if c.Skew.Abs() >= tolerableSkew {
		where := map[bool]string{false: "behind", true: "ahead of"}[c.Skew < 0]
		l.warn("synchronize clocks (NTP): certificates and tokens are refused, and latencies in metrics are wrong",
			"this node's is %s %s the API server's", duration.HumanDuration(c.Skew.Abs()), where)
	}
	l.otherwise("within seconds of the API server's")
}

// unreachable are the taints that the API server's controllers set while a Node's pods can't be reached.
var unreachable = []string{
	"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/network-unavailable",
}

func (f *Facts) node(l *found) {
	if f.Daemon.Cluster == nil {
		return
	}
	here := func(a netip.Addr) bool { return slices.Contains(f.Host.Addrs, a) }
	const noTraffic = "/healthz answers 503, so that load balancers send no new connections"
	name, addrs := f.Wants.NodeName, f.Daemon.NodeObject.Addrs
	switch {
	case f.Daemon.NodeUnread:
		l.warn("see the line about the API server",
			"not known yet: it has not been read whether the cluster has a Node %q", name)
	case !f.Daemon.Node.Known && f.Daemon.Health.NoNode != "":
		l.fail("set --hostname-override to the Node's name (kubectl get nodes), or register the Node",
			"the cluster has no Node %q: no endpoint is local, and the Node's addresses, pod ranges and zone "+
				"are not known", name)
	case !f.Daemon.Node.Known:
		l.fail("register the Node again (restart the kubelet), or drain the machine",
			"the Node %q is deleted: %s; the last known addresses stay in use", name, noTraffic)
	case f.Daemon.Node.Why != "":
		l.warn("nothing, if the node is being removed; otherwise remove the taint, or let the kubelet report "+
			"the Node's addresses", "the Node %q %s: %s", name, f.Daemon.Node.Why, noTraffic)
	case slices.ContainsFunc(f.Daemon.NodeObject.Taints, func(t string) bool { return slices.Contains(unreachable, t) }):
		l.fail("check the kubelet, and the network plugin: kubectl describe node "+name,
			"the Node %q has the taint %s: its pods are not ready, or have no network", name,
			report.List(f.Daemon.NodeObject.Taints, 0))
	case len(addrs) == 0:
		l.warn("let the kubelet, or the cloud controller, report status.addresses",
			"the Node %q has no address", name)
	case len(f.Host.Addrs) > 0 && !slices.ContainsFunc(addrs, here):
		l.fail("set --hostname-override to the name of this machine's Node; in a pod, use hostNetwork: true",
			"no interface of this machine has an address of the Node %q (%s): it is another machine's", name,
			report.List(addrs, 0))
	default:
		l.good("%s, %s", name, report.List(addrs, 0))
	}
}

// podRanges compares --cluster-cidr with the addresses that pods of this node have or, without pods that Services use,
// with the Node's pod ranges. A network plugin may ignore the latter, so the former decide.
func (f *Facts) podRanges(l *found) {
	if f.Daemon.Pods.Mode != model.ByClusterCIDR || len(f.Daemon.Pods.ClusterCIDRs) == 0 {
		return // pods are not distinguished from other clients, or otherwise
	}
	const fix = "set --cluster-cidr (clusterCIDR) to the ranges of pods in the whole cluster, as the network plugin " +
		"and the controller manager have it"
	const consequence = "connections of pods are treated as external: they are masqueraded, " +
		"and internal ones may be refused"
	for _, family := range model.Families {
		isOther := func(a netip.Addr) bool { return model.FamilyOf(a) != family }
		ranges := slices.DeleteFunc(slices.Clone(f.Daemon.Pods.ClusterCIDRs),
			func(r netip.Prefix) bool { return isOther(r.Addr()) })
		pods := slices.DeleteFunc(slices.Clone(f.Wants.LocalPods), isOther)
		inside := func(r netip.Prefix) bool { return slices.ContainsFunc(pods, r.Contains) }
		switch {
		case len(ranges) == 0, slices.ContainsFunc(ranges, inside):
			continue
		case len(pods) > 0:
			l.fail(fix, "--cluster-cidr %s has none of the pods on this node, such as %v: %s",
				report.List(ranges, 0), pods[0], consequence)
			continue
		}
		for _, p := range f.Daemon.NodeObject.PodCIDRs {
			if !isOther(p.Addr()) && !slices.ContainsFunc(ranges, p.Overlaps) {
				l.warn(fix, "--cluster-cidr %s does not contain %v, the Node's spec.podCIDRs: %s",
					report.List(ranges, 0), p, consequence)
			}
		}
	}
	l.otherwise("--cluster-cidr %s", report.List(f.Daemon.Pods.ClusterCIDRs, 0))
}

func (f *Facts) sync(l *found) {
	var fine []string
	for _, family := range model.Families {
		r := f.Daemon.Health.Families[family]
		waits := report.Age(r.Waiting, f.At)
		switch {
		case r.LastError != "":
			waiting := ""
			if waits != "" {
				waiting = "; changes wait for " + waits
			}
			fix := "the error names the cause; vmapd tries again, at least each 30 s"
			if strings.Contains(r.LastError, "owned by another process") {
				fix = "end the other vmapd on this node (kubectl -n kube-system get pods -o wide, and systemctl): " +
					"two must not program the same tables"
			}
			l.fail(fix, "%v: the last sync failed%s: %s", family, waiting, r.LastError)
		case r.Synced.IsZero():
			l.fail("see the lines about the API server", "%v: nothing is programmed yet", family)
		case !r.Healthy:
			l.fail("look for a busy processor, and read the log", "%v: a change waits for %s", family, waits)
		default:
			fine = append(fine, fmt.Sprintf("%v %s ago", family, report.Age(r.Synced, f.At)))
		}
	}
	text := "last sync succeeded: " + strings.Join(fine, ", ")
	if f.Daemon.Pending > 0 {
		text += fmt.Sprintf("; %d changes are pending", f.Daemon.Pending)
	}
	l.otherwise("%s", text)
}

// Comparison is one of the kernel's rules with those of the Services.
type Comparison struct {
	Differences []string
	Errs        []error // of reading
	Not         string  // why it was not made; "": it was
}

func (f *Facts) table(l *found) {
	if f.Table.Not != "" {
		l.good("not compared: %s", f.Table.Not)
	}
	if n := len(f.Table.Differences); n > 0 {
		fix := "wait for --iptables-sync-period, after which vmapd compares and repairs; if the line stays, "
		if f.Wants.Backend == "nftables" {
			fix = "restart vmapd, which compares and repairs at its start; "
		}
		l.fail(fix+"keep the output of vmapd doctor --all for a report",
			"the kernel's rules differ from the expected ones in %d operations, such as: %s",
			n, strings.Join(f.Table.Differences[:min(3, n)], "; "))
	}
	for _, err := range f.Table.Errs {
		l.warn("the error names the cause", "can't be compared: %v", err)
	}
	l.otherwise("the kernel has exactly the expected rules")
}

func (f *Facts) otherProxies(l *found) {
	if f.Daemon == nil && (f.Other != "" || !errors.Is(f.NoDaemon, socket.ErrNoDaemon)) {
		return // rules and ports may be the daemon's own
	}
	for _, text := range f.OtherProxies {
		if f.Daemon == nil {
			l.warn("end it before vmapd starts, or do not start vmapd", "%s", text)
			continue
		}
		l.fail("end the other proxy: delete its DaemonSet, or keep it from this node "+
			"(cmd/vmapd/docs/from-kube-proxy.md); then restart vmapd, which removes its rules", "%s", text)
	}
	if f.Leftovers != "" {
		fix := "vmapd removes them; if they stay, the log has the reason"
		if f.Daemon == nil {
			fix = "without a proxy, remove them with vmapd cleanup"
		}
		l.warn(fix, "rules that another proxy left: %s", f.Leftovers)
	}
	if f.Unexamined != nil {
		l.warn("give vmapd CAP_NET_ADMIN and the programs of iptables-legacy",
			"what another proxy left is unknown: %s", strings.ReplaceAll(f.Unexamined.Error(), "\n", "; "))
	}
	if f.Daemon == nil || f.Host.NetAdmin { // else, nothing could be looked for
		l.otherwise("no other Service proxy detected")
	}
}

func (f *Facts) ports(l *found) {
	for _, err := range f.Daemon.Ports {
		l.warn("end the process that has the port (ss -ltnp), or change --healthz-bind-address or "+
			"--metrics-bind-address; Services work without", "%v", err)
	}
	l.otherwise("none of the daemon's ports is in use by another process")
}

func (f *Facts) listeners(l *found) {
	for _, text := range f.Daemon.Listeners {
		l.fail("the log has the reasons: cannot listen", "%s", text)
	}
	if f.Wants.Backend == userspace {
		l.otherwise("all addresses that the node has are served")
	}
}

// judge warns if something wanted is lacking.
func (a Ability) judge(l *found, fix string) {
	switch {
	case a.Lacks:
		l.warn(fix, "%s", a.Text)
	case a.Text != "":
		l.good("%s", a.Text)
	}
}

func (f *Facts) retry(l *found) {
	f.Daemon.Retry.judge(l, "a kernel that has it, or --connection-retry=false")
}

func (f *Facts) fastPath(l *found) {
	f.Daemon.FastPath.judge(l, "--fast-path=off, a kernel that has it, or names of devices that can")
}
