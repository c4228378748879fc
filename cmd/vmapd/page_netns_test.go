package main

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

// onThePage returns the page's answer about a Service, by the daemon's socket.
func onThePage(t *testing.T, path, name string) (one status.One) {
	t.Helper()
	query := url.Values{"namespace": {"default"}, "name": {name}}
	if err := (socket.Client{Path: path}).Get(t.Context(), "/api/service", query, &one); err != nil {
		t.Fatal(err)
	}
	return one
}

// The packet's way on the page is what the programs of each backend list.
func TestThePageTellsThePacketsWay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		backend   string
		lists     []string // commands
		has       []string // names on the way
		uncounted string
	}{
		{"nftables", []string{"nft list ruleset"}, []string{"map service-ips", "chain endpoints-3-to-4", "map endpoints"}, ""},
		{
			"iptables",
			[]string{"iptables-save", "ip6tables-save"},
			[]string{"chain nat VMAPD-SERVICES", "chain nat VMAPD-C-[A-Z2-7]{16}", "chain filter VMAPD-FILTER", "chain nat VMAPD-POSTROUTING"},
			"not counted: with iptables, each answer would need a listing of all rules",
		},
		{
			"ipvs", nil,
			[]string{"frontends of default/web:tcp", "endpoints one of them, random"},
			"not counted: IPVS counts nothing that is refused, and begins at 0 when it makes a virtual server anew",
		},
	} {
		t.Run(tt.backend, func(t *testing.T) {
			if tt.backend == "ipvs" {
				skipWithoutIPVS(t)
			}
			w := newLab(t)
			path := filepath.Join(t.TempDir(), "vmapd.sock")
			startVmapd(t, w.Node, "--backend="+tt.backend, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName,
				"--service-counters", "--socket", path).waitFor(t, "msg=ready")
			var listed strings.Builder
			for _, command := range tt.lists {
				words := strings.Fields(command)
				out, err := w.Node.Command(t.Context(), words[0], words[1:]...).Output()
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				listed.Write(out)
			}
			one := onThePage(t, path, "web")
			if one.Uncounted != tt.uncounted {
				t.Errorf("%q, want %q", one.Uncounted, tt.uncounted)
			}
			var names strings.Builder
			for _, way := range one.Ways {
				for _, stage := range way.Stages {
					names.WriteString(stage.Kind + " " + stage.Name + "\n")
					for _, line := range stage.Lines {
						if tt.lists == nil {
							break // the way is without the dataplane's rules
						}
						if want := asListed(stage, line); !strings.Contains(listed.String(), want) {
							t.Errorf("%s %s: the programs do not list %q", stage.Kind, stage.Name, want)
						}
					}
				}
			}
			for _, want := range tt.has {
				if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(names.String()) {
					t.Errorf("the way has no %s:\n%s", want, &names)
				}
			}
			if tt.uncounted != "" {
				return
			}
			if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.10:80")); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "the connection is counted", func() bool {
				n := onThePage(t, path, "web").Services.Items[0].Connections
				return n != nil && *n == 1
			})
		})
	}
}

// asListed returns how a program lists a line of a stage.
func asListed(stage status.Stage, line string) string {
	if strings.Contains(stage.Name, "VMAPD-") {
		_, chain, _ := strings.Cut(stage.Name, " ")
		return "-A " + chain + " " + line
	}
	// nft lists counters with their values, and leaves a match out that another part of the rule implies.
	line, _, _ = strings.Cut(line, " counter")
	return strings.TrimPrefix(strings.TrimPrefix(line, "meta l4proto tcp "), "meta l4proto udp ")
}
