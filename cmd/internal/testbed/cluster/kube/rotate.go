package kube

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A cluster replaces its keys in three steps, after each of which everything works: the new one is
// accepted beside the old one; the new one is used; the old one is no longer accepted. The
// functions here change files and command lines; what uses them must be restarted.

// AddAuthority makes another certificate authority, which programs that read ca.crt from now on
// trust, too. What signs certificates of nodes stays as it is.
func (c *Cluster) AddAuthority() error {
	if _, err := newAuthority(c.path("pki"), "ca-new"); err != nil {
		return err
	}
	var both []byte
	for _, name := range []string{"ca.crt", "ca-new.crt"} {
		cert, err := os.ReadFile(c.path("pki", name))
		if err != nil {
			return fmt.Errorf("trust another authority: %w", err)
		}
		both = append(both, cert...)
	}
	if err := os.WriteFile(c.path("pki/ca.crt"), both, 0o600); err != nil {
		return fmt.Errorf("trust another authority: %w", err)
	}
	return nil
}

// UseAuthority gives the API server a certificate of the authority that AddAuthority made.
func (c *Cluster) UseAuthority() error {
	ca, err := readAuthority(c.path("pki"), "ca-new")
	if err != nil {
		return err
	}
	return ca.issue(c.path("pki"), "apiserver", server())
}

// AddTokenKey makes another key for the tokens of ServiceAccounts: the API server signs with it,
// and accepts tokens of the former one, too.
func (c *Cluster) AddTokenKey() error {
	if err := newTokenKey(c.path("pki"), "sa-new"); err != nil {
		return err
	}
	p := c.Process(apiserver)
	for i, arg := range p.Args {
		if strings.HasPrefix(arg, "--service-account-signing-key-file=") {
			p.Args[i] = "--service-account-signing-key-file=" + c.path("pki/sa-new.key")
		}
	}
	p.Args = append(p.Args, acceptTokens+c.path("pki/sa-new.pub"))
	return p.remember()
}

// DropTokenKey has the API server refuse tokens of the former key.
func (c *Cluster) DropTokenKey() error {
	p := c.Process(apiserver)
	old := acceptTokens + c.path("pki/sa.pub")
	p.Args = slices.DeleteFunc(p.Args, func(arg string) bool { return arg == old })
	return p.remember()
}

const acceptTokens = "--service-account-key-file="
