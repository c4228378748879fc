package conntrack

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// withoutRules are the commands by which another program takes vmapd's rules away. Since Linux 6.9 it can't with
// nftables: the tables have an owner.
var withoutRules = map[string][]string{
	"iptables-nft":    {"iptables -t nat -F", "iptables -F", "ip6tables -t nat -F", "ip6tables -F"},
	"iptables-legacy": {"iptables -t nat -F", "iptables -F", "ip6tables -t nat -F", "ip6tables -F"},
}

// passed finds families whose connections a pass has looked at.
var passed = regexp.MustCompile(`(?m)^kubeproxy_conntrack_reconciler_sync_duration_seconds_count\{.*\} [1-9]`)

// Another program takes the rules away, clients begin to connect, and vmapd puts the rules back: what the clients send next is
// translated. vmapd sleeps meanwhile, so that it is not faster than the clients.
func TestConnectionsThatBeginWhileTheRulesAreGone(t *testing.T) {
	for name, commands := range withoutRules {
		t.Run(name, func(t *testing.T) {
			backend, variant, _ := strings.Cut(name, "-")
			vmapdtest.UseVariant(t, variant)
			w := labtest.New(t)
			leadAway(t, w)
			p := vmapdtest.StartDemo(t, w.Node, "--backend="+backend)
			vmapdtest.WaitUntil(t, "the first passes over connections have ended", func() bool {
				metrics, err := w.Node.Command(t.Context(), "curl", "-s", "http://127.0.0.1:10249/metrics").Output()
				return err == nil && len(passed.FindAll(metrics, -1)) == len(model.Families)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			kept, err := w.Client.Dial(ctx, "tcp", netip.MustParseAddrPort("172.30.0.10:80"))
			if err != nil {
				t.Fatal(err)
			}
			defer kept.Close()

			send(t, p, syscall.SIGSTOP)
			for _, command := range commands {
				words := strings.Fields(command)
				vmapdtest.Feed(t, w.Node, "", words[0], words[1:]...)
			}
			tcp, udp := []string{"172.30.0.10:80", "[fd00:172:30::10]:80"}, []string{"172.30.0.10:80", "[fd00:172:30::10]:80", "192.168.0.2:30080"}
			ended := make(chan error, len(tcp)+len(udp))
			for _, vip := range tcp {
				go func() { ended <- connect(ctx, w.Client, netip.MustParseAddrPort(vip)) }()
			}
			for _, vip := range udp {
				go func() { ended <- askUntilAnswered(ctx, w.Client, netip.MustParseAddrPort(vip)) }()
			}
			vmapdtest.WaitUntil(t, "first packets are tracked", func() bool {
				tracked := vmapdtest.Feed(t, w.Node, "", "cat", "/proc/net/nf_conntrack")
				return strings.Count(tracked, "SYN_SENT") == len(tcp) && strings.Count(tracked, "[UNREPLIED]") >= len(tcp)+len(udp)
			})
			send(t, p, syscall.SIGCONT)
			for range cap(ended) {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			if _, err := kept.Ask(t.Context()); err != nil {
				t.Errorf("a connection from before: %v", err)
			}
			if t.Failed() {
				t.Logf("%s\n%s", vmapdtest.Feed(t, w.Node, "", "cat", "/proc/net/nf_conntrack"), p.Log)
			}
			vmapdtest.Stop(t, p)
		})
	}
}

// leadAway lets packets to cluster IPs leave the node to nobody, and switches connection tracking on, as the rules of a network
// plugin or firewall do.
func leadAway(t *testing.T, w *lab.World) {
	t.Helper()
	vmapdtest.Feed(t, w.Node, "table inet other { chain forward { type filter hook forward priority 0; ct state established accept; }; }", "nft", "-f", "-")
	for _, args := range []string{
		"link add away type veth peer name nobody", "link set away up", "link set nobody up",
		"route add 172.30.0.0/16 dev away", "neigh add 172.30.0.10 lladdr 02:00:00:00:00:01 dev away",
		"-6 route add fd00:172:30::/112 dev away", "neigh add fd00:172:30::10 lladdr 02:00:00:00:00:01 dev away",
	} {
		vmapdtest.Feed(t, w.Node, "", "ip", strings.Fields(args)...)
	}
}

func send(t *testing.T, p *vmapdtest.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// connect connects by TCP, and asks.
func connect(ctx context.Context, from *lab.Namespace, to netip.AddrPort) error {
	c, err := from.Dial(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Ask(ctx)
	return err
}

// askUntilAnswered asks by UDP from one socket until there is an answer.
func askUntilAnswered(ctx context.Context, from *lab.Namespace, to netip.AddrPort) error {
	c, err := from.Dial(ctx, "udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		asking, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err = c.Ask(asking)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}
