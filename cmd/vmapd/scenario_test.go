package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftsim"
	"github.com/vmapd/vmapd/sync/manifest"
)

// A scenario is one situation, in testdata/scenario:
//
//	In plain words, what this shows.
//	flags: --masquerade-all
//	-- in.yaml --
//	the manifests
//	-- want.nft --
//	what "vmapd render" prints
//	-- want.stderr --
//	what it says besides; may be missing
//	-- flows --
//	client 172.30.0.41:80/tcp => 10.0.0.2:8080 10.0.0.3:8080
//
// Each flow is a kind of connection and what becomes of it; see flow_test.go. It is run
// through the simulator here, and for real in scenario_netns_test.go.
//
// The address plan is the lab's: pods 10.0.0.0/8, ClusterIPs 172.30.0.0/16, nodes
// 192.168.0.0/24 (ours .2), load-balancer addresses 192.168.98.0/24, ExternalIPs
// 192.168.99.0/24, outside 203.0.113.0/24 (the client .9), and IPv6 twins.
type scenario struct {
	name  string
	path  string
	about string   // the comment on top
	flags []string // for render
	files []archiveFile
}

type archiveFile struct{ name, data string }

var update = flag.Bool("update", false, "rewrite want.nft and want.stderr in testdata/scenario")

func scenarios(t *testing.T) []*scenario {
	t.Helper()
	paths, err := filepath.Glob("../../testdata/scenario/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var all []*scenario
	for _, path := range paths {
		s := &scenario{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), path: path}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.parse(string(data))
		all = append(all, s)
	}
	return all
}

// parse reads an archive: a comment, then files, each under a line "-- name --".
func (s *scenario) parse(text string) {
	data := &s.about
	for line := range strings.Lines(text) {
		marker := strings.TrimSpace(line)
		if strings.HasPrefix(marker, "-- ") && strings.HasSuffix(marker, " --") && len(marker) > len("-- ") {
			s.files = append(s.files, archiveFile{name: strings.TrimSpace(marker[3 : len(marker)-3])})
			data = &s.files[len(s.files)-1].data
			continue
		}
		*data += line
	}
	for line := range strings.Lines(s.about) {
		if flags, ok := strings.CutPrefix(line, "flags: "); ok {
			s.flags = append(s.flags, strings.Fields(flags)...)
		}
	}
}

func (s *scenario) file(name string) string {
	for _, f := range s.files {
		if f.name == name {
			return f.data
		}
	}
	return ""
}

// set replaces a file; one that is new and not empty goes before the flows.
func (s *scenario) set(name, data string) {
	for i := range s.files {
		if s.files[i].name == name {
			s.files[i].data = data
			return
		}
	}
	if data != "" {
		last := len(s.files) - 1
		s.files = append(s.files[:last:last], archiveFile{name, data}, s.files[last])
	}
}

func (s *scenario) write() error {
	var b strings.Builder
	b.WriteString(s.about)
	for _, f := range s.files {
		fmt.Fprintf(&b, "-- %s --\n%s", f.name, f.data)
	}
	return os.WriteFile(s.path, []byte(b.String()), 0o644)
}

// render runs "vmapd render" on the scenario's manifests.
func (s *scenario) render(t *testing.T) (stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "in.yaml")
	if err := os.WriteFile(in, []byte(s.file("in.yaml")), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), append([]string{"render", "-f", in}, s.flags...), nil, &out, &errs)
	stderr = strings.ReplaceAll(errs.String(), dir+string(filepath.Separator), "")
	if want := min(len(stderr), 1); code != want {
		t.Errorf("vmapd render exits with %d, want %d; it says:\n%s", code, want, stderr)
	}
	return out.String(), stderr
}

// snapshot builds what render renders.
func (s *scenario) snapshot(t *testing.T) (*model.Snapshot, *manifest.Objects) {
	t.Helper()
	var traffic trafficFlags
	flags := pflag.NewFlagSet(s.name, pflag.ContinueOnError)
	traffic.addFlags(flags)
	flags.StringVar(&traffic.nodeName, "node-name", "", "")
	if err := flags.Parse(s.flags); err != nil {
		t.Fatalf("flags: %v", err)
	}
	config, err := traffic.config()
	if err != nil {
		t.Fatalf("flags: %v", err)
	}
	// What is wrong with the manifests is in want.stderr.
	objects, _ := manifest.Parse("in.yaml", []byte(s.file("in.yaml")))
	if config.NodeName == "" {
		if config.NodeName, err = onlyNodeName(objects.Nodes()); err != nil {
			t.Fatal(err)
		}
	}
	b := model.NewBuilder(config)
	objects.ApplyTo(b)
	return b.Snapshot(), objects
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			stdout, stderr := s.render(t)
			if *update {
				s.set("want.nft", stdout)
				s.set("want.stderr", stderr)
				if err := s.write(); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(lines(s.file("want.nft")), lines(stdout)); diff != "" {
				t.Errorf("want.nft (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(lines(s.file("want.stderr")), lines(stderr)); diff != "" {
				t.Errorf("want.stderr (-want +got):\n%s", diff)
			}
			snapshot, objects := s.snapshot(t)
			flows := s.flows(t)
			if len(flows) == 0 {
				t.Error("there are no flows")
			}
			for _, f := range flows {
				t.Run(f.text, func(t *testing.T) { f.simulate(t, snapshot, objects) })
			}
			t.Run("nft accepts the text", func(t *testing.T) { checkByNFT(t, stdout) })
		})
	}
}

func lines(s string) []string { return strings.Split(s, "\n") }

// simulate runs a flow through the simulator.
func (f flow) simulate(t *testing.T, snapshot *model.Snapshot, objects *manifest.Objects) {
	t.Helper()
	family := model.FamilyOf(f.dest.Addr())
	sim, err := nftsim.New(nft.Compile(nil, snapshot.Family(family)), nodeAddrs(objects)...)
	if err != nil {
		t.Fatal(err)
	}
	const clientPort = 40000
	got, err := sim.Run(nftsim.Packet{
		From: f.from.kind, Source: netip.AddrPortFrom(f.from.addr(family), clientPort), Dest: f.dest, Protocol: f.protocol,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := nftsim.Outcome{Verdict: nftsim.Accept}
	switch f.want {
	case "reject":
		want = nftsim.Outcome{Verdict: nftsim.Reject, TCPReset: f.protocol == model.TCP}
	case "drop":
		want.Verdict = nftsim.Drop
	case "elsewhere":
		want.To = map[netip.AddrPort]nftsim.Arrival{f.dest: {Share: 1}}
	default:
		want.To = map[netip.AddrPort]nftsim.Arrival{}
		for _, e := range f.endpoints {
			want.To[e.addr] = nftsim.Arrival{Share: 1 / float64(len(f.endpoints)), Masquerade: e.masquerade}
		}
	}
	trace := got.Trace
	got.Trace = nil
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("line %d of flows (-want +got):\n%s\nrules met:\n%s", f.line, diff, strings.Join(trace, "\n"))
	}
}

// nodeAddrs returns the addresses of the scenario's Nodes: there is only ours.
func nodeAddrs(objects *manifest.Objects) []netip.Addr {
	var addrs []netip.Addr
	for _, n := range objects.Nodes() {
		for _, s := range n.Addresses {
			if a, err := netip.ParseAddr(s); err == nil {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// checkByNFT has nft check a script.
func checkByNFT(t *testing.T, script string) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	// Without privilege, nft does not even check.
	out, err := command(t.Context(), strings.NewReader(script), "unshare", "-rn", "nft", "-c", "-f", "-")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func command(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdin = stdin
	out, err := c.CombinedOutput()
	return string(out), err
}

// A scenario that nobody can fail shows nothing: what the flows' parser refuses.
func TestFlowsAreReadStrictly(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"client 172.30.0.41:80/tcp => 10.0.0.2:8080", ""},
		{"client 172.30.0.41:80/tcp => 10.0.0.2:8080 masquerade 10.0.0.3:8080", ""},
		{"client 172.30.0.41:80/tcp 10.0.0.2:8080", "no =>"},
		{"client 172.30.0.41:80/tcp =>", "no outcome"},
		{"someone 172.30.0.41:80/tcp => reject", "unknown origin"},
		{"client 172.30.0.41/tcp => reject", "bad destination"},
		{"client 172.30.0.41:80 => reject", "bad destination"},
		{"client 172.30.0.41:80/icmp => reject", "bad destination"},
		{"client 172.30.0.41:80/tcp => reject 10.0.0.2:8080", "bad endpoint"},
		{"client 172.30.0.41:80/tcp => masquerade 10.0.0.2:8080", "masquerade before any endpoint"},
		{"client 172.30.0.41:80/tcp => [fd00:10::2]:8080", "another family"},
		{"client 172.30.0.41:80/tcp => 10.0.0.2:8080 10.0.0.2:8080", "twice"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			_, err := parseFlow(tt.line)
			if err == nil {
				err = errors.New("")
			}
			if !strings.Contains(err.Error(), tt.want) || (tt.want == "") != (err.Error() == "") {
				t.Errorf("got error %q, want one with %q", err, tt.want)
			}
		})
	}
}
