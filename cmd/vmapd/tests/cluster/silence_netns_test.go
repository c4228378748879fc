package cluster

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// A load balancer may forget the connections to the API server. Nobody says so, and HTTP/1.1 has no pings: new
// connections replace them within a minute, and doctor says meanwhile when the last answer came.
func TestForgottenConnectionsToTheAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes a minute")
	}
	t.Parallel()
	vmapdtest.NeedNFT(t)
	c := &vmapdtest.Cluster{World: labtest.New(t), Dir: t.TempDir()}
	if err := c.Node.Do(func() (err error) { c.API, err = apitest.NewServer(apitest.Options{}); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.API.Close)
	if _, err := c.API.Kubeconfig(c.Dir); err != nil {
		t.Fatal(err)
	}
	c.API.Set(vmapdtest.OurNode())
	for _, o := range vmapdtest.Decode(t, filepath.Join(vmapdtest.Demo(t), "services.yaml")) {
		c.API.Set(o)
	}
	c.API.Set(vmapdtest.WebSlice(2))
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	c.StartReady(t, "--socket", socket)
	forget(t, c)

	forgotten := time.Now()
	c.API.Set(vmapdtest.WebSlice(3))
	lastAnswer := regexp.MustCompile(`api-server .*last answer ([2-9][0-9])s ago`)
	vmapdtest.Eventually(t, func() string {
		var out bytes.Buffer
		if err := c.Node.Do(func() error {
			cli.Run(t.Context(), []string{"doctor", "--socket", socket}, nil, &out, &out)
			return nil
		}); err != nil {
			return err.Error()
		}
		if !lastAnswer.MatchString(out.String()) {
			return "doctor does not say that the last answer is old:\n" + out.String()
		}
		return ""
	})
	vmapdtest.WaitUntil(t, "the change arrives by another connection", func() bool {
		a, err := c.Client.Ask(t.Context(), "tcp", vmapdtest.WebVIP)
		return err == nil && a.Pod == "pod-2"
	})
	t.Logf("the change took %v", time.Since(forgotten).Round(time.Second))
}

// forget drops all packets of the connections that there are now to the API server, which is on the node.
func forget(t *testing.T, c *vmapdtest.Cluster) {
	t.Helper()
	u, err := url.Parse(c.API.URL())
	if err != nil {
		t.Fatal(err)
	}
	server, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	if err := c.Node.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/tcp")
		for line := range strings.Lines(string(text)) {
			var local, remote uint64
			var from, to int
			if n, _ := fmt.Sscanf(line, "%d: %x:%x %x:%x 01", new(int), &local, &from, &remote, &to); n == 5 && to == server {
				ports = append(ports, strconv.Itoa(from))
			}
		}
		return err
	}); err != nil || len(ports) == 0 {
		t.Fatalf("connections to the API server: %v, %v", ports, err)
	}
	clients := "{ " + strings.Join(ports, ", ") + " }"
	vmapdtest.Feed(t, c.Node, fmt.Sprintf(`table inet forgotten { chain input { type filter hook input priority 0;
		tcp sport %d tcp dport %s drop
		tcp dport %d tcp sport %s drop
	}; }`, server, clients, server, clients), "nft", "-f", "-")
}
