package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// A cluster replaces its keys in three steps, after each of which everything works: the new one is
// accepted beside the old one; the new one is used; the old one is no longer accepted. The
// functions here change files and command lines; the programs that use them must be restarted.

// AddAuthority makes another certificate authority, which programs that read ca.crt from now on
// trust, too. The certificates of kubelets are still signed by the first.
func (c *Cluster) AddAuthority() error {
	if _, err := newAuthority(c.path("pki"), "ca-new"); err != nil {
		return err
	}
	trusted, err := os.ReadFile(c.path("pki/ca.crt"))
	if err != nil {
		return fmt.Errorf("trust another authority: %w", err)
	}
	// The controller manager refuses to sign with a file of several certificates.
	const first = "pki/ca-first.crt"
	if _, err := os.Stat(c.path(first)); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(c.path(first), trusted, 0o600); err != nil {
			return fmt.Errorf("keep the first authority: %w", err)
		}
	}
	more, err := os.ReadFile(c.path("pki/ca-new.crt"))
	if err != nil {
		return fmt.Errorf("trust another authority: %w", err)
	}
	if err := os.WriteFile(c.path("pki/ca.crt"), append(trusted, more...), 0o600); err != nil {
		return fmt.Errorf("trust another authority: %w", err)
	}
	p := c.Process(controllerManager)
	p.setArg("--cluster-signing-cert-file", c.path(first))
	return p.remember()
}

// UseAuthority gives the API server a certificate of the authority that AddAuthority made.
func (c *Cluster) UseAuthority() error {
	ca, err := readAuthority(c.path("pki"), "ca-new")
	if err != nil {
		return err
	}
	return ca.issue(c.path("pki"), "apiserver", server())
}

// signFor is the controller manager's flag with the life of certificates.
const signFor = "--cluster-signing-duration="

// acceptTokens is the flag, of which there can be several, with a key whose tokens are valid.
const acceptTokens = "--service-account-key-file="

// AddTokenKey makes another key for the tokens of ServiceAccounts: the API server signs with it,
// and accepts tokens of the former one, too.
func (c *Cluster) AddTokenKey() error {
	p := c.Process(apiserver)
	name := "sa"
	for i := 2; ; i++ {
		if _, err := os.Stat(c.path("pki", name+".key")); errors.Is(err, fs.ErrNotExist) {
			break
		}
		name = fmt.Sprintf("sa-%d", i)
	}
	if err := newTokenKey(c.path("pki"), name); err != nil {
		return err
	}
	p.setArg("--service-account-signing-key-file", c.path("pki", name+".key"))
	p.Args = append(p.Args, acceptTokens+c.path("pki", name+".pub"))
	return p.remember()
}

// DropTokenKeys has the API server refuse tokens of all keys but the one that it signs with.
func (c *Cluster) DropTokenKeys() error {
	p := c.Process(apiserver)
	newest := ""
	for _, arg := range p.Args {
		if strings.HasPrefix(arg, acceptTokens) {
			newest = arg
		}
	}
	p.Args = slices.DeleteFunc(p.Args, func(arg string) bool { return strings.HasPrefix(arg, acceptTokens) && arg != newest })
	return p.remember()
}

// SignFor changes the life of the certificates that the controller manager signs; 0 is the default.
func (c *Cluster) SignFor(d time.Duration) error {
	p := c.Process(controllerManager)
	p.Args = slices.DeleteFunc(p.Args, func(arg string) bool { return strings.HasPrefix(arg, signFor) })
	if d > 0 {
		p.Args = append(p.Args, signFor+d.String())
	}
	return p.remember()
}

// setArg changes the value of a flag.
func (p *Process) setArg(flag, value string) {
	for i, arg := range p.Args {
		if strings.HasPrefix(arg, flag+"=") {
			p.Args[i] = flag + "=" + value
		}
	}
}
