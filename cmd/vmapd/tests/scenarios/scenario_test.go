package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	directory "github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/manifest"
)

// A scenario is one archive of testdata/scenario, whose README.md describes the format. Here
// its flows are compared with model.Decide; in scenario_netns_test.go they are real connections.
type scenario struct {
	name  string
	path  string
	about string    // the comment on top
	flags []string  // for render
	empty *scenario // the scenario of the empty cluster, with which golden texts compare
	files []archiveFile
	once  *once
}

// once is what is loaded once.
type once struct {
	sync.Once
	loaded *loaded
}

type archiveFile struct{ name, data string }

func scenarios(t *testing.T) []*scenario {
	t.Helper()
	paths, err := filepath.Glob(vmapdtest.Testdata(t) + "/scenario/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	var all []*scenario
	empty := &scenario{}
	for _, path := range paths {
		s := &scenario{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), path: path, empty: empty, once: &once{}}
		if s.name == "empty" {
			*empty, s = *s, empty
		}
		data := testaid.Read(t, path)
		s.parse(data)
		all = append(all, s)
	}
	return all
}

// parse reads an archive.
func (s *scenario) parse(text string) {
	a := txtar.Parse([]byte(text))
	s.about = string(a.Comment)
	for _, f := range a.Files {
		s.files = append(s.files, archiveFile{f.Name, string(f.Data)})
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

// set replaces a part. It adds a new one before the flows, unless its text is empty.
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

// manifests returns the scenario's manifests, with the empty cluster's Node if they have none.
func (s *scenario) manifests() string {
	own := s.file("in.yaml")
	if strings.Contains(own, "\nkind: Node\n") {
		return own
	}
	return own + "---\n" + s.empty.file("in.yaml")
}

// render runs "vmapd render" on the scenario's manifests.
func (s *scenario) render(t *testing.T) (stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "in.yaml")
	testaid.Write(t, in, s.manifests())
	var out, errs bytes.Buffer
	command := cli.Render{NodeFlags: s.parseFlags(t)}
	command.Paths = []string{in}
	code := 0
	if err := command.Run(&out, &errs); err != nil {
		code = 1
	}
	stderr = strings.ReplaceAll(errs.String(), dir+string(filepath.Separator), "")
	if want := min(len(stderr), 1); code != want {
		t.Errorf("vmapd render exits with %d, want %d; it says:\n%s", code, want, stderr)
	}
	return out.String(), stderr
}

// parseFlags reads the scenario's flags, which are the daemon's.
func (s *scenario) parseFlags(t *testing.T) (n cli.NodeFlags) {
	t.Helper()
	flags := pflag.NewFlagSet(s.name, pflag.ContinueOnError)
	n.AddFlags(flags)
	flags.StringVar(&n.NodeName, "node-name", "", "")
	if err := flags.Parse(s.flags); err != nil {
		t.Fatalf("flags: %v", err)
	}
	return n
}

// loaded is what a scenario's flags and manifests mean.
type loaded struct {
	*config.Config
	*model.Snapshot
	*manifest.Objects
}

// load returns the configuration of the scenario's flags, and the snapshot that render compiles. All tests of a
// scenario share them.
func (s *scenario) load(t *testing.T) *loaded {
	t.Helper()
	s.once.Do(func() {
		command := s.parseFlags(t)
		conf, err := command.Load(t.Output())
		if err != nil {
			t.Fatalf("flags: %v", err)
		}
		path := filepath.Join(t.TempDir(), "in.yaml")
		testaid.Write(t, path, s.manifests())
		objects, _, err := manifest.Load([]string{path}) // errors in the manifests are in want.stderr
		if err != nil {
			t.Fatal(err)
		}
		traffic := conf.Model()
		if traffic.NodeName, err = config.OnlyNode(traffic.NodeName, directory.Of(objects).Nodes); err != nil {
			t.Fatal(err)
		}
		b := model.NewBuilder(traffic)
		objects.ApplyTo(b)
		s.once.loaded = &loaded{conf, b.Snapshot(), objects}
	})
	if s.once.loaded == nil {
		t.Fatalf("%s was not loaded: see the first failure", s.path)
	}
	return s.once.loaded
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	all := scenarios(t)
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			stdout, stderr := s.render(t)
			s.checkGolden(t, "want.stderr", stderr)
			for _, f := range model.Families {
				s.checkTable(t, f, tableOf(t, stdout, f))
				if s == s.empty {
					s.checkGolden(t, familyPart(f, "chains"), chainsGolden(t, all, f))
				}
			}
			if *testaid.Update {
				if err := s.write(); err != nil {
					t.Fatal(err)
				}
			}
			flows := s.flows(t)
			if len(flows) == 0 {
				t.Error("there are no flows")
			}
			for _, f := range flows {
				t.Run(f.text, func(t *testing.T) { f.checkDecision(t, s.load(t).Snapshot, nodeAddrs(s.load(t).Objects)) })
			}
			t.Run("nft accepts it", func(t *testing.T) {
				vmapdtest.NeedNFT(t)
				script := tableOf(t, stdout, model.IPv4)
				if six := tableOf(t, stdout, model.IPv6); parsable(six) { // else only netlink tries it
					script += six
				}
				if out, err := nftCheck(t.Context(), script); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		})
	}
}

// checkGolden compares a part of the archive, or rewrites it.
func (s *scenario) checkGolden(t *testing.T, name, got string) {
	t.Helper()
	if *testaid.Update {
		s.set(name, got)
	}
	if diff := cmp.Diff(lines(s.file(name)), lines(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// checkTable checks one family's golden text. table is the output of render.
func (s *scenario) checkTable(t *testing.T, f model.Family, table string) {
	t.Helper()
	if s == s.empty {
		s.checkGolden(t, familyPart(f, "nft"), table)
		return
	}
	before, after := s.empty.situation(t, f), s.situation(t, f)
	if diff := cmp.Diff(table, after.conf.NFTables().Compile(nil, after.FamilySnapshot).Table().String()); diff != "" {
		t.Errorf("render does not print the compiled ruleset (-render +compiled):\n%s", diff)
	}
	s.checkGolden(t, familyPart(f, "nft"), nftGolden(before, after))
}

func (s *scenario) situation(t *testing.T, f model.Family) situation {
	t.Helper()
	l := s.load(t)
	return situation{l.Config, l.Family(f)}
}

func lines(s string) []string { return strings.Split(s, "\n") }

// nodeAddrs returns the node's addresses in the lab: its own, and those of the scenario's
// only Node.
func nodeAddrs(objects *manifest.Objects) []netip.Addr {
	addrs := []netip.Addr{netip.MustParseAddr(lab.NodeIP4), netip.MustParseAddr(lab.NodeIP6)}
	for _, n := range directory.Of(objects).Nodes {
		for _, s := range n.Addresses {
			if a, err := netip.ParseAddr(s); err == nil && !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// tableOf returns one family's part of the output of render.
func tableOf(t *testing.T, script string, f model.Family) string {
	t.Helper()
	const second = "\ntable ip6 "
	i := strings.Index(script, second) + 1
	if !strings.HasPrefix(script, "table ip ") || i == 0 || strings.Contains(script[i:], second) {
		t.Fatalf("these are not two tables:\n%s", script)
	}
	if f == model.IPv4 {
		return script[:i]
	}
	return script[i:]
}

// nftCheck runs nft -c in a user namespace: nft needs privileges for a check, too.
func nftCheck(ctx context.Context, script string) (string, error) {
	c := exec.CommandContext(ctx, "unshare", "-rn", "nft", "-c", "-f", "-")
	c.Stdin = strings.NewReader(script)
	out, err := c.CombinedOutput()
	return string(out), err
}

// parsable reports whether nft can read a table. It can list all of them.
func parsable(table string) bool {
	return !strings.HasPrefix(table, "table ip6 ") || !strings.Contains(table, " update @") || parsesIPv6Update()
}

// parsesIPv6Update reports whether nft parses the update statement of session affinity in
// IPv6. Old versions abort.
var parsesIPv6Update = sync.OnceValue(func() bool {
	_, err := nftCheck(context.Background(), `table ip6 t {
		map m { type ipv6_addr : ipv6_addr . inet_service; flags dynamic, timeout; size 10; }
		chain c { meta l4proto tcp update @m { ip6 saddr timeout 1h : ip6 daddr . th dport }; }
	}`)
	return err == nil
})
