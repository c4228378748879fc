package kube

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vmapd/vmapd/model/nettest"
)

// load returns a certificate that fits its key.
func load(t *testing.T, dir, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// newPKI makes keys and certificates of a cluster without processes.
func newPKI(t *testing.T) (c *Cluster, dir string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		nettest.Missing(t, err)
	}
	c = connect(Config{Dir: t.TempDir()})
	dir = c.path("pki")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.PKI(t.Context(), "make_all"); err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func TestCertificatesAreAcceptedByTheirPeers(t *testing.T) {
	c, dir := newPKI(t)
	if err := c.PKI(t.Context(), "issue ca n1 /O=system:nodes/CN=system:node:n1 DNS:n1,IP:192.168.77.11,IP:fd77::11"); err != nil {
		t.Fatal(err)
	}
	pools := map[string]*x509.CertPool{}
	for _, name := range []string{"ca", "front-ca"} {
		pools[name] = x509.NewCertPool()
		pools[name].AddCert(load(t, dir, name))
	}
	for _, test := range []struct {
		name, ca, server string
		usage            x509.ExtKeyUsage
		want             bool
	}{
		{"apiserver", "ca", "192.168.77.10", x509.ExtKeyUsageServerAuth, true},
		{"apiserver", "ca", "fd77::10", x509.ExtKeyUsageServerAuth, true},
		{"apiserver", "ca", "10.96.0.1", x509.ExtKeyUsageServerAuth, true},
		{"apiserver", "ca", "fd00:96::1", x509.ExtKeyUsageServerAuth, true},
		{"apiserver", "ca", "kubernetes.default.svc", x509.ExtKeyUsageServerAuth, true},
		{"apiserver", "ca", "10.96.0.2", x509.ExtKeyUsageServerAuth, false},
		{"n1", "ca", "192.168.77.11", x509.ExtKeyUsageServerAuth, true},
		{"n1", "ca", "192.168.77.12", x509.ExtKeyUsageServerAuth, false},
		{"admin", "ca", "", x509.ExtKeyUsageClientAuth, true},
		{"bootstrap", "ca", "", x509.ExtKeyUsageClientAuth, true},
		{"front", "front-ca", "", x509.ExtKeyUsageClientAuth, true},
		{"front", "ca", "", x509.ExtKeyUsageClientAuth, false},
		{"admin", "front-ca", "", x509.ExtKeyUsageClientAuth, false},
	} {
		_, err := load(t, dir, test.name).Verify(x509.VerifyOptions{
			Roots: pools[test.ca], DNSName: test.server, KeyUsages: []x509.ExtKeyUsage{test.usage},
		})
		if (err == nil) != test.want {
			t.Errorf("%s by %s as %q: want accepted %v, got %v", test.name, test.ca, test.server, test.want, err)
		}
	}
}
