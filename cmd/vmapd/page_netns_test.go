package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

// onThePage returns the page's answer about a Service.
func onThePage(t *testing.T, node *lab.Namespace, name string) (one status.One) {
	t.Helper()
	answer := get(node, nil, metricsURL+"/api/service?namespace=default&name="+name)
	if err := json.Unmarshal([]byte(answer.body), &one); err != nil {
		t.Fatalf("%v: %v", answer, err)
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
			startVmapd(t, w.Node, "--backend="+tt.backend, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName,
				"--service-counters", "--socket=").waitFor(t, "msg=ready")
			var listed strings.Builder
			for _, command := range tt.lists {
				words := strings.Fields(command)
				out, err := w.Node.Command(t.Context(), words[0], words[1:]...).Output()
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				listed.Write(out)
			}
			one := onThePage(t, w.Node, "web")
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
				n := onThePage(t, w.Node, "web").Services.Items[0].Connections
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

// A browser has no token. The command of TROUBLESHOOTING.md runs a proxy that adds one.
func TestThePageBehindAProxyThatAddsTheToken(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("caddy"); err != nil {
		t.Skip("caddy is not installed: the proxy of TROUBLESHOOTING.md is not tried")
	}
	second := object[rbacv1.ClusterRole](t, readDeployed(t, "vmapd.yaml"), "ClusterRole vmapd-metrics-authentication").Rules
	c := startCluster(t, slices.Concat(deployedRules(t), second)...)
	cert, key, _ := selfSigned(t, net.ParseIP("127.0.0.1"))
	c.api.Know("secret", authenticationv1.UserInfo{Username: "reader"})
	for _, path := range []string{"/", "/api/services"} {
		c.api.Permit("reader", "get", path)
	}
	c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--metrics-auth=token",
		"--tls-cert-file", cert, "--tls-private-key-file", key).waitFor(t, "msg=ready")

	page, err := os.ReadFile("deploy/TROUBLESHOOTING.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^    `).ReplaceAllString(regexp.MustCompile(`(?ms)^    caddy run .*?^    END$`).FindString(string(page)), "")
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(kubectl, []byte("#!/bin/sh\ntest \"$*\" = '-n kube-system create token NAME' && echo secret\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	proxy := c.Node.Command(t.Context(), "sh", "-c", "exec "+command)
	proxy.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
	log := &syncBuffer{}
	proxy.Stderr = log
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", command, log)
		}
	}()
	if got := wantStatus(t, c.Node, "http://localhost:8080/", http.StatusOK); !strings.Contains(got.body, "<title>vmapd</title>") {
		t.Errorf("the page is %v", got)
	}
	wantStatus(t, c.Node, "http://localhost:8080/api/services", http.StatusOK)
	wantStatus(t, c.Node, "http://localhost:8080/metrics", http.StatusForbidden)
	// The token is for this machine, and for a browser that asks for this name.
	if got := get(c.Client, nil, "http://"+lab.NodeIP4+":8080/", "Host", "localhost"); got.err == nil {
		t.Errorf("another machine reads the page: %v", got)
	}
	if got := get(c.Node, nil, "http://127.0.0.1:8080/"); strings.Contains(got.body, "vmapd") {
		t.Errorf("by another name, the page is %v", got)
	}
}
