package kube

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certutil "k8s.io/client-go/util/cert"
)

// rotated returns a cluster without processes, whose keys can be replaced.
func rotated(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{Config: Config{Dir: t.TempDir()}}
	for _, dir := range []string{"pki", "process"} {
		if err := os.Mkdir(c.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := makePKI(c.path("pki")); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		apiserver: {
			"kube-apiserver", "--service-account-key-file=" + c.path("pki/sa.pub"),
			"--service-account-signing-key-file=" + c.path("pki/sa.key"),
		},
		controllerManager: {"kube-controller-manager", "--cluster-signing-cert-file=" + c.path("pki/ca.crt")},
	} {
		p := c.Process(name)
		p.Args = args
		if err := p.remember(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestANewAuthorityIsTrustedBesideTheFormer(t *testing.T) {
	c := rotated(t)
	for range 2 { // it can be replaced again
		former, formerPool := readCertificate(t, c.path("pki/apiserver.crt")), trusted(t, c)
		if err := c.AddAuthority(); err != nil {
			t.Fatal(err)
		}
		pool := trusted(t, c)
		if err := c.UseAuthority(); err != nil {
			t.Fatal(err)
		}
		present := readCertificate(t, c.path("pki/apiserver.crt"))
		for name, cert := range map[string]*x509.Certificate{"former": former, "present": present} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: "kubernetes"}); err != nil {
				t.Errorf("the %s certificate: %v", name, err)
			}
		}
		if _, err := present.Verify(x509.VerifyOptions{Roots: formerPool, DNSName: "kubernetes"}); err == nil {
			t.Error("a former authority has signed the present certificate")
		}
	}
	signing := c.path("pki/ca-first.crt")
	if diff := cmp.Diff("--cluster-signing-cert-file="+signing, c.Process(controllerManager).Args[1]); diff != "" {
		t.Error(diff)
	}
	if pem, err := os.ReadFile(signing); err != nil || bytes.Count(pem, []byte("BEGIN")) != 1 {
		t.Errorf("want one certificate to sign with, got %s, %v", pem, err)
	}
}

func trusted(t *testing.T, c *Cluster) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(c.path("pki/ca.crt"))
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no certificates are trusted", err)
	}
	return pool
}

func readCertificate(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func TestANewTokenKeyIsAcceptedBesideTheFormer(t *testing.T) {
	c := rotated(t)
	former := "sa"
	for _, name := range []string{"sa-2", "sa-3"} { // it can be replaced again
		if err := c.AddTokenKey(); err != nil {
			t.Fatal(err)
		}
		file := func(name string) string { return filepath.Join(c.Dir, "pki", name) }
		const accept, sign = "--service-account-key-file=", "--service-account-signing-key-file="
		want := []string{"kube-apiserver", accept + file(former+".pub"), sign + file(name+".key"), accept + file(name+".pub")}
		if former != "sa" {
			want[1], want[2] = want[2], want[1]
		}
		if diff := cmp.Diff(want, c.Process(apiserver).Args); diff != "" {
			t.Error(diff)
		}
		if err := c.DropTokenKeys(); err != nil {
			t.Fatal(err)
		}
		want = []string{"kube-apiserver", sign + file(name+".key"), accept + file(name+".pub")}
		if diff := cmp.Diff(want, c.Process(apiserver).Args); diff != "" {
			t.Error(diff)
		}
		former = name
	}
}

// The controller manager has one life of certificates at most.
func TestSignFor(t *testing.T) {
	c := rotated(t)
	first := c.Process(controllerManager).Args
	for _, tt := range []struct {
		life time.Duration
		want []string
	}{
		{time.Hour, append(slices.Clip(first), "--cluster-signing-duration=1h0m0s")},
		{time.Minute, append(slices.Clip(first), "--cluster-signing-duration=1m0s")},
		{0, first},
	} {
		if err := c.SignFor(tt.life); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, c.Process(controllerManager).Args); diff != "" {
			t.Errorf("for %v (-want +got):\n%s", tt.life, diff)
		}
	}
}
