package scenarios

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

var (
	imageFolder  = flag.String("image", "", "a released image, unpacked, whose program TestTheImageProgramsScenarios runs")
	imageBackend = flag.String("image-backend", "nftables", "the backend of that program")
)

// scenariosOfImages are few, because the program is what all other tests have already tried: both families and
// protocols, node ports and load balancers, and a set that packets write to.
func scenariosOfImages() []string { return []string{"cluster-ip", "external-policy-local", "affinity"} }

// unpacked is a container of a released image, by its configuration
// (https://github.com/opencontainers/image-spec/blob/main/config.md). Root is what runtimes make of it: a file system
// with the folders for mounts.
func unpacked(t *testing.T, folder string) vmapdtest.Container {
	t.Helper()
	text := testaid.Read(t, filepath.Join(folder, "config.json"))
	var image struct {
		Architecture string
		Config       struct {
			User, WorkingDir string
			Env, Entrypoint  []string
			Labels           map[string]string
		}
	}
	if err := json.Unmarshal([]byte(text), &image); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, for %s", image.Config.Labels["org.opencontainers.image.version"], image.Architecture)
	c := vmapdtest.Container{Root: filepath.Join(folder, "root"), Env: append(image.Config.Env,
		"NODE_NAME="+lab.NodeName), Command: image.Config.Entrypoint}
	if _, err := fmt.Sscanf(image.Config.User, "%d:%d", &c.UID, &c.GID); err != nil || image.Config.WorkingDir != "" ||
		len(c.Command) == 0 {
		t.Fatalf("the user is not UID:GID, there is a working folder, or no program: %+v", image.Config)
	}
	for _, dir := range []string{"dev", "proc", "sys", manifestsPath, filepath.Dir(socket.DefaultPath)} {
		if err := os.MkdirAll(filepath.Join(c.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	vmapdtest.ReplaceFile(t, filepath.Join(c.Root, vmapdtest.XtablesLock), "")
	return c
}

// manifestsPath is a folder of the container, below the one where the DaemonSet mounts the ConfigMap.
const manifestsPath = "/var/lib/vmapd/manifests"

// An image as it is released starts by its own configuration, with nothing around it, and with the rights that its
// container has in the DaemonSet: it programs scenarios, whose connections arrive, and misses nothing. "make -C
// cmd/internal/testbed test-images-vm" runs this in machines of other processors.
func TestTheImageProgramsScenarios(t *testing.T) {
	if *imageFolder == "" {
		t.Skip("-image does not name a released image: make -C cmd/internal/testbed test-images-vm")
	}
	c := unpacked(t, *imageFolder)
	all := scenarios(t)
	for _, name := range scenariosOfImages() {
		t.Run(name, func(t *testing.T) {
			s := all[slices.IndexFunc(all, func(s *scenario) bool { return s.name == name })]
			objects := s.load(t).Objects
			flows := s.flows(t)
			vmapdtest.ReplaceFile(t, filepath.Join(c.Root, manifestsPath, "in.yaml"), s.manifests())
			// The init container of the DaemonSet is privileged, and sets what the daemon then need not. One limit can't be
			// set in the network namespace of a test.
			flags := append(slices.Clone(s.flags), "--hostname-override="+lab.NodeName, "--conntrack-max-per-core=0",
				"--backend="+*imageBackend, "--from="+manifestsPath)
			w := newWorld(t, objects, flows)
			setup, daemon := c, c
			setup.Privileged = true
			daemon.Privileged = *imageBackend != "nftables" // as legacy.yaml has it
			if p := setup.In(t, w.Node, append(slices.Clone(flags), "--init-only")...); p.Exit(t) != 0 {
				t.Fatalf("--init-only:\n%s", p.Log)
			}
			p := daemon.In(t, w.Node, flags...)
			p.WaitFor(t, "msg=ready")
			heard := listen(t, w, flows)
			var last string
			for _, f := range flows {
				t.Run(f.text, func(t *testing.T) { last = f.connect(t, w, heard[f.line], last) })
			}
			vmapdtest.Stop(t, p)
			if strings.Contains(p.Log.String(), "level=ERROR") {
				t.Errorf("the program in the container misses something:\n%s", p.Log)
			}
		})
	}
}
