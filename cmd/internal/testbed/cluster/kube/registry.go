package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
)

// The user of the cluster's registry, the password, and its hash by bcrypt.
const (
	RegistryUser     = "puller"
	RegistryPassword = "secret"
	registryHash     = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"
)

const (
	registry     = "registry"
	registries   = "registries" // folder with a folder for each registry, which all nodes read
	registryPort = 5000
)

// Registry is where nodes pull images from, once StartRegistry has started it.
func Registry() string {
	v4, _ := Addresses(Control)
	return netip.AddrPortFrom(v4, registryPort).String()
}

// Authority is the file of the authority that the API server's certificate is from, and the registry's.
func (c *Cluster) Authority() string { return c.path("pki", "ca.crt") }

// StartRegistry starts a registry beside the control plane by a program, the registry of the CNCF's project Distribution. It is
// empty at first, speaks TLS, and asks for a password. Nodes trust its certificate from then on; the password is a matter of pods.
func (c *Cluster) StartRegistry(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dir, trust := c.path(registry), c.path(registries, Registry())
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the images of an earlier registry: %w", err)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(trust, 0o755)); err != nil {
		return err
	}
	values := map[string]string{
		"Folder": filepath.Join(dir, "images"), "Host": Registry(), "PKI": c.path("pki"), "Passwords": filepath.Join(dir, "htpasswd"),
	}
	if err := writeFilled("registry.yaml", filepath.Join(dir, "registry.yaml"), values); err != nil {
		return err
	}
	hosts := fmt.Sprintf("[host.\"https://%s\"]\n  ca = %q\n", Registry(), c.Authority())
	for file, text := range map[string]string{values["Passwords"]: RegistryUser + ":" + registryHash + "\n", filepath.Join(trust, "hosts.toml"): hosts} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	p := c.Process(registry)
	p.Space, p.Args = Control, []string{program, "serve", filepath.Join(dir, "registry.yaml")}
	if err := p.Start(ctx); err != nil {
		return err
	}
	return c.until(ctx, "wait for the registry", []*Process{p}, func() error { return c.tryRegistry(ctx) })
}

// tryRegistry asks for the registry's version without a password, which it must refuse.
func (c *Cluster) tryRegistry(ctx context.Context) error {
	conf, err := c.RESTConfig()
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.Authority())
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{DialContext: conf.Dial, TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+Registry()+"/v2/", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		return fmt.Errorf("the registry asks for no password: %s", answer.Status)
	}
	return nil
}
