package diagnosis

import (
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// clusterBreakages are those between vmapd and its cluster. Services go on with what is known, which is the danger: the
// symptom comes with the next change.
func clusterBreakages() []breakage {
	doctor := []string{"doctor"}
	away := func(how apitest.Outage) func(*testing.T, *patient) {
		return func(t *testing.T, p *patient) {
			if err := p.API.Outage(how); err != nil {
				t.Fatal(err)
			}
		}
	}
	// changeIsLost removes pod-1's endpoint, which goes on to be used.
	changeIsLost := func(t *testing.T, p *patient) {
		p.API.Set(vmapdtest.WebSlice(3))
		for range 100 {
			if a := p.Ask(t, vmapdtest.WebVIP); a.Pod != "pod-2" {
				return
			}
		}
		t.Error("the change arrives, though the API server is away")
	}
	return []breakage{
		{
			name: "API server long gone", command: doctor, exit: 3, spoil: away(apitest.Refusing), symptom: changeIsLost,
			want: "fail api-server endpointslices, nodes, servicecidrs, services can't be read from https://",
			more: []string{"(last answer ", "connection refused", "-> check that the API server runs"},
		},
		{
			name: "API server away at the start", command: doctor, exit: 3, notUp: true,
			prepare: func(t *testing.T, p *patient) {
				away(apitest.Refusing)(t, p)
				p.startUp(t)
			},
			symptom: func(t *testing.T, p *patient) {
				p.daemon.WaitFor(t, "cannot read from the API server")
				vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/readyz", http.StatusServiceUnavailable)
				p.wantSilence(t, p.Client, vmapdtest.WebVIP)
			},
			want: "can't be read from https://",
			more: []string{
				"(no answer yet)", "connection refused", "fail sync IPv4: nothing is programmed yet",
				"nothing is programmed until they have been read",
				`warn node not known yet: it has not been read whether the cluster has a Node "node-1"`,
			},
		},
		{
			name: "403", command: doctor, exit: 3, symptom: changeIsLost,
			spoil: func(_ *testing.T, p *patient) {
				p.Forbid()
				p.API.DropWatches()
			},
			want: "is forbidden", more: []string{"fail api-server", `can't be read from https://`, "-> "},
		},
		{
			name: "wrong Node name", command: doctor, exit: 3, args: []string{"--hostname-override", "elsewhere"},
			symptom: func(t *testing.T, p *patient) { // node ports with the policy Local have no endpoint here
				page := vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/readyz", http.StatusServiceUnavailable)
				if !strings.Contains(page.Body, "vmapd doctor has a finding: fail node\n") {
					t.Errorf("/readyz says %v", page)
				}
				vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/livez", http.StatusOK)
				p.Ask(t, vmapdtest.WebVIP)
			},
			want: `fail node the cluster has no Node "elsewhere": no endpoint is local`,
			more: []string{"-> set --hostname-override"},
		},
		{
			name: "Node deleted", command: doctor, exit: 3,
			spoil: func(_ *testing.T, p *patient) { p.API.Delete(vmapdtest.OurNode()) },
			symptom: func(t *testing.T, p *patient) {
				vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/healthz", http.StatusServiceUnavailable)
			},
			want: `fail node the Node "node-1" is deleted: /healthz answers 503`,
		},
		{
			name: "Node tainted", command: doctor,
			spoil: func(_ *testing.T, p *patient) {
				n := vmapdtest.OurNode()
				n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
				p.API.Set(n)
			},
			symptom: func(t *testing.T, p *patient) {
				vmapdtest.WantStatus(t, p.Client, vmapdtest.HealthURL+"/healthz", http.StatusServiceUnavailable)
			},
			want: `warn node the Node "node-1" has the taint ToBeDeletedByClusterAutoscaler: /healthz answers 503`,
		},
		{
			name: "wrong cluster-cidr, and no pods yet", command: doctor, args: []string{"--cluster-cidr", "10.9.0.0/16"},
			spoil: func(_ *testing.T, p *patient) {
				n := vmapdtest.OurNode()
				n.Spec.PodCIDRs = []string{"10.0.0.0/24"}
				p.API.Set(n)
				p.API.Set(vmapdtest.WebSlice())
			},
			want: "warn pod-ranges --cluster-cidr 10.9.0.0/16 does not contain 10.0.0.0/24, the Node's spec.podCIDRs",
		},
		{
			name: "wrong cluster-cidr, and pods", command: doctor, exit: 3, args: []string{"--cluster-cidr", "10.9.0.0/16"},
			symptom: func(t *testing.T, p *patient) {
				// A pod's connection to a cluster IP is masqueraded, as a stranger's.
				for range 100 {
					if a, err := p.Pods()[0].Ask(t.Context(), "tcp", vmapdtest.WebVIP); err != nil || a.Pod == "pod-1" {
						continue
					} else if a.Source.Addr().String() == lab.FirstPodIP4 {
						t.Errorf("%s sees the pod's address", a.Pod)
					}
					return
				}
				t.Error("no other pod answers")
			},
			want: "fail pod-ranges --cluster-cidr 10.9.0.0/16 has none of the pods on this node, such as 10.0.0.",
		},
	}
}

func TestBreakagesOfTheCluster(t *testing.T) {
	t.Parallel()
	for _, b := range clusterBreakages() {
		t.Run(b.name, b.run)
	}
}

// processBreakages are those of the process, or of another one beside it.
func processBreakages() []breakage {
	doctor := []string{"doctor"}
	listen := func(t *testing.T, p *patient, address string) {
		var l net.Listener
		if err := p.Node.Do(func() (err error) {
			l, err = net.Listen("tcp", address)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	return []breakage{
		{
			name: "kube-proxy still running", command: doctor, exit: 3,
			spoil: func(t *testing.T, p *patient) {
				vmapdtest.LeaveRules(t, p.Node, "nft") // as a kube-proxy that writes its rules at each period
			},
			want: "fail other-proxies objects came back after they had been removed: of kube-proxy",
			more: []string{"-> end the other proxy"},
		},
		{
			name: "two vmapd", command: doctor, exit: 3,
			prepare: func(t *testing.T, p *patient) {
				p.StartReady(t, "--socket", "", "--healthz-bind-address", "", "--metrics-bind-address", "")
				p.startUp(t)
			},
			want: "owned by another process", more: []string{
				"fail sync IPv4: the last sync failed",
				"-> end the other vmapd on this node",
			},
		},
		{
			name: "a daemon that hangs", command: doctor, exit: 3,
			spoil: func(t *testing.T, p *patient) {
				if err := p.daemon.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = p.daemon.Cmd.Process.Signal(syscall.SIGCONT) })
			},
			symptom: func(t *testing.T, p *patient) { // nobody is told to end it
				var asking sync.WaitGroup
				for _, command := range [][]string{{"doctor"}, {"explain", "--from", "node", "web:80"}, {"status", "web"}} {
					asking.Go(func() {
						began := time.Now()
						output, _ := p.vmapd(t, command...)
						if took := time.Since(began); took > 20*time.Second || !strings.Contains(output, "does not answer within 5s") ||
							strings.Contains(output, "other-proxies") {
							t.Errorf("vmapd %s, after %v:\n%s", command[0], took, output)
						}
					})
				}
				asking.Wait()
			},
			want: "fail daemon the daemon at", more: []string{"does not answer within 5s", "-> read its log"},
		},
		{
			name: "ports taken", command: doctor,
			prepare: func(t *testing.T, p *patient) {
				listen(t, p, ":10256")
				listen(t, p, "127.0.0.1:10249")
			},
			symptom: func(t *testing.T, p *patient) {
				p.Ask(t, vmapdtest.WebVIP) // Services work
				p.WantEvent(t, "FailedToStartMetricServer", "Node", lab.NodeName, "address already in use")
			},
			want: "warn ports healthz server: ", more: []string{"address already in use", "warn ports metrics server: "},
		},
		{
			name: "invalid change of the configuration", command: doctor,
			prepare: func(t *testing.T, p *patient) {
				path := filepath.Join(p.Dir, "config.yaml")
				vmapdtest.ReplaceFile(t, path, p.Config("clusterCIDR: 10.0.0.0/24"))
				p.startReady(t, "--config", path)
				vmapdtest.ReplaceFile(t, path, p.Config("clusterCIDR: 10.0.0.0/77"))
			},
			want: "warn configuration the last change is refused, and the one before stays: ", more: []string{"clusterCIDR"},
		},
		{
			name: "bad configuration", exit: 3, notUp: true, command: []string{"doctor", "--config", "testdata/bad-config.yaml"},
			prepare: func(t *testing.T, p *patient) { mustNotStart(t, p, "--config", "testdata/bad-config.yaml") },
			want:    "fail configuration the daemon would not start with this configuration: ", more: []string{
				"clusterCIDR",
				"fail daemon no daemon answers",
			},
		},
		{
			name: "flushed table", command: doctor,
			spoil: func(t *testing.T, p *patient) {
				// The kernel refuses it from Linux 6.9 on; before, vmapd repairs it.
				_, _ = p.Node.Command(t.Context(), "nft", "flush", "table", "ip", "vmapd").CombinedOutput()
				_, _ = p.Node.Command(t.Context(), "nft", "delete", "table", "ip", "vmapd").CombinedOutput()
			},
			symptom: func(t *testing.T, p *patient) {
				vmapdtest.WaitUntil(t, "connections work", func() bool {
					_, err := p.Client.Ask(t.Context(), "tcp", vmapdtest.WebVIP)
					return err == nil
				})
			},
			want: "ok table the kernel has exactly the expected rules",
		},
		{
			name: "read-only /proc/sys", command: doctor,
			prepare: func(t *testing.T, p *patient) {
				p.through = []string{
					"unshare", "--mount", "sh", "-ec",
					`mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec "$@"`, "sh",
				}
				p.daemon = vmapdtest.Launch(t, p.Node, "unshare", append(slices.Clone(p.through), vmapdtest.Program(t), "--kubeconfig",
					p.Kubeconfig(), "--hostname-override", lab.NodeName,
					"--socket", p.socket, "--conntrack-max-per-core=0", "--conntrack-udp-timeout", "41s")...)
				p.daemon.WaitFor(t, "msg=ready")
			},
			symptom: func(t *testing.T, p *patient) { p.daemon.WaitFor(t, "could not set sysctl") },
			want:    "warn sysctls /proc/sys/net/netfilter/nf_conntrack_udp_timeout should be 41 (conntrack.udpTimeout) and is",
			more:    []string{"-> /proc/sys is mounted read-only: use the init container with --init-only"},
		},
		{
			name: "no NET_ADMIN", command: doctor, exit: 3, notUp: true,
			prepare: func(t *testing.T, p *patient) {
				p.through = []string{"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all,+net_raw"}
				mustNotStart(t, p)
			},
			want: "warn privilege this process lacks CAP_NET_ADMIN",
			more: []string{"a daemon with the same rights could not start", "-> give the container the capability NET_ADMIN"},
		},
		{
			name: "no iptables", command: []string{"doctor", "--backend=iptables"}, exit: 3, notUp: true,
			prepare: func(t *testing.T, p *patient) {
				p.through = withoutPrograms()
				mustNotStart(t, p, "--backend=iptables")
			},
			want: "fail kernel", more: []string{"vmapd's image has them; on a host, install them"},
		},
		{
			name: "no IPVS", command: []string{"doctor", "--backend=ipvs"}, exit: 3, notUp: true,
			prepare: func(_ *testing.T, p *patient) { p.through = withoutPrograms() },
			symptom: func(t *testing.T, p *patient) { p.wantSilence(t, p.Client, vmapdtest.WebVIP) },
			want:    "fail kernel", more: []string{
				"programs that the backend ipvs runs are not installed: iptables",
				"or use --backend=auto",
			},
		},
	}
}

// mustNotStart starts a daemon that ends with an error, before it has changed anything.
func mustNotStart(t *testing.T, p *patient, args ...string) {
	t.Helper()
	args = slices.Concat(p.through, []string{
		vmapdtest.Program(t), "--kubeconfig", p.Kubeconfig(), "--hostname-override", lab.NodeName, "--socket=",
		"--conntrack-udp-timeout=41s",
	}, args)
	if code := vmapdtest.Launch(t, p.Node, args[0], args...).Exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if timeout, rules := p.Read(t, "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"), vmapdtest.ListRuleset(t, p.Node); timeout == "41" ||
		rules != "" {
		t.Errorf("it changed the node: the UDP timeout is %s, and the rules are\n%s", timeout, rules)
	}
	p.wantSilence(t, p.Client, vmapdtest.WebVIP)
}

// withoutPrograms is a command that runs another one, which finds no programs. An emulated machine has no env.
func withoutPrograms() []string {
	return []string{"sh", "-c", `PATH=/nowhere; exec "$@"`, "sh"}
}

func TestBreakagesOfTheProcess(t *testing.T) {
	t.Parallel()
	for _, b := range processBreakages() {
		t.Run(b.name, b.run)
	}
}
