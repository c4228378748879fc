package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

var (
	imageFolder  = flag.String("image", "", "a released image, unpacked, whose program TestTheImageProgramsScenarios runs")
	imageBackend = flag.String("image-backend", "nftables", "the backend of that program")
)

// scenariosOfImages are few, because the program is what all other tests have already tried: both families and protocols,
// node ports and load balancers, and a set that packets write to.
func scenariosOfImages() []string { return []string{"cluster-ip", "external-policy-local", "affinity"} }

// unpacked is a container of a released image, by its configuration
// (https://github.com/opencontainers/image-spec/blob/main/config.md). Root is what runtimes make of it: a file system with
// the folders for mounts.
func unpacked(t *testing.T, folder string) container {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var image struct {
		Architecture string
		Config       struct {
			User, WorkingDir string
			Env, Entrypoint  []string
			Labels           map[string]string
		}
	}
	if err := json.Unmarshal(text, &image); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, for %s", image.Config.Labels["org.opencontainers.image.version"], image.Architecture)
	c := container{Root: filepath.Join(folder, "root"), Env: append(image.Config.Env, "NODE_NAME="+lab.NodeName), Command: image.Config.Entrypoint}
	if _, err := fmt.Sscanf(image.Config.User, "%d:%d", &c.UID, &c.GID); err != nil || image.Config.WorkingDir != "" || len(c.Command) == 0 {
		t.Fatalf("the user is not UID:GID, there is a working folder, or no program: %+v", image.Config)
	}
	for _, dir := range []string{"dev", "proc", "sys", manifestsPath, filepath.Dir(socket.DefaultPath)} {
		if err := os.MkdirAll(filepath.Join(c.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	replaceFile(t, filepath.Join(c.Root, xtablesLock), "")
	return c
}

// manifestsPath is a folder of the container, below the one where the DaemonSet mounts the ConfigMap.
const manifestsPath = "/var/lib/vmapd/manifests"

// warnings are what a daemon misses, without the time.
func warnings(p *process) string {
	var all strings.Builder
	for line := range strings.Lines(p.log.String()) {
		if i := strings.Index(line, "level=WARN"); i >= 0 || strings.Contains(line, "level=ERROR") {
			all.WriteString(line[max(i, 0):])
		}
	}
	return all.String()
}

// in starts the container in a network namespace.
func (c container) in(t *testing.T, ns *lab.Namespace, args ...string) *process {
	t.Helper()
	p := &process{cmd: ns.Command(t.Context(), "/proc/self/exe"), log: &syncBuffer{}}
	p.cmd.Args, p.cmd.Stderr = c.args(t, args...), p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// An image as it is released starts by its own configuration, with nothing around it, and with the rights that its
// container has in the DaemonSet: it programs scenarios, whose connections arrive, and its rules are those of this test's
// program. "make test-images-vm" runs this in machines of other processors.
func TestTheImageProgramsScenarios(t *testing.T) {
	if *imageFolder == "" {
		t.Skip("-image does not name a released image: make test-images-vm")
	}
	c := unpacked(t, *imageFolder)
	rules := rulesOf
	if *imageBackend == "nftables" {
		rules = func(t *testing.T, ns *lab.Namespace) string { return structure(t, ns) }
	}
	all := scenarios(t)
	for _, name := range scenariosOfImages() {
		t.Run(name, func(t *testing.T) {
			s := all[slices.IndexFunc(all, func(s *scenario) bool { return s.name == name })]
			_, objects := s.snapshot(t)
			flows := s.flows(t)
			replaceFile(t, filepath.Join(c.Root, manifestsPath, "in.yaml"), s.manifests())
			// The init container of the DaemonSet is privileged, and sets what the daemon then need not. One limit can't be
			// set in the network namespace of a test.
			flags := append(slices.Clone(s.flags), "--hostname-override="+lab.NodeName, "--conntrack-max-per-core=0", "--backend="+*imageBackend)
			from := func(folder string, more ...string) []string {
				return slices.Concat(flags, []string{"--from=" + folder}, more)
			}

			fresh := newWorld(t, objects, flows)
			ours := startVmapd(t, fresh.Node, from(filepath.Join(c.Root, manifestsPath))...)
			ours.waitFor(t, "msg=ready")
			want := rules(t, fresh.Node)
			stopVmapd(t, ours)

			w := newWorld(t, objects, flows)
			setup, daemon := c, c
			setup.Privileged = true
			daemon.Privileged = *imageBackend != "nftables" // as legacy.yaml has it
			if p := setup.in(t, w.Node, from(manifestsPath, "--init-only")...); p.exit(t) != 0 {
				t.Fatalf("--init-only:\n%s", p.log)
			}
			p := daemon.in(t, w.Node, from(manifestsPath)...)
			p.waitFor(t, "msg=ready")
			if diff := cmp.Diff(want, rules(t, w.Node)); diff != "" {
				t.Errorf("the rules are others than of this test's program (-want +got):\n%s", diff)
			}
			heard := listen(t, w, flows)
			var last string
			for _, f := range flows {
				t.Run(f.text, func(t *testing.T) { last = f.connect(t, w, heard[f.line], last) })
			}
			stopVmapd(t, p)
			if diff := cmp.Diff(warnings(ours), warnings(p)); diff != "" {
				t.Errorf("the program in the container misses other things than outside (-outside +container):\n%s", diff)
			}
		})
	}
}
