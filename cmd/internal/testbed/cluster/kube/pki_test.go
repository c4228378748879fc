package kube

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
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

func TestCertificatesAreAcceptedByTheirPeers(t *testing.T) {
	dir := t.TempDir()
	if err := makePKI(dir); err != nil {
		t.Fatal(err)
	}
	ca, err := readAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := Addresses("n1")
	if err := ca.issue(dir, "n1", certutil.Config{
		CommonName: "system:node:n1", AltNames: certutil.AltNames{DNSNames: []string{"n1"}, IPs: []net.IP{v4.AsSlice(), v6.AsSlice()}},
	}); err != nil {
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

func TestKubeconfigsAreOfUsersWithTheirRights(t *testing.T) {
	dir := t.TempDir()
	if err := makePKI(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ user, group string }{
		"admin":                   {"admin", "system:masters"},
		"bootstrap":               {"system:bootstrap:testbed", "system:bootstrappers"},
		"kube-controller-manager": {"system:kube-controller-manager", ""},
		"kube-scheduler":          {"system:kube-scheduler", ""},
	} {
		conf, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, name+".conf"))
		if err != nil {
			t.Fatal(err)
		}
		if want := "https://192.168.77.10:6443"; conf.Host != want {
			t.Errorf("%s: want server %s, got %s", name, want, conf.Host)
		}
		if want := filepath.Join(dir, name+".crt"); conf.CertFile != want {
			t.Errorf("%s: want certificate %s, got %s", name, want, conf.CertFile)
		}
		cert := load(t, dir, name)
		group := ""
		if len(cert.Subject.Organization) > 0 {
			group = cert.Subject.Organization[0]
		}
		if cert.Subject.CommonName != want.user || group != want.group {
			t.Errorf("%s: want user %q of %q, got %q of %q", name, want.user, want.group, cert.Subject.CommonName, group)
		}
	}
}

func TestKeysAreReadByTheirOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	if err := makePKI(dir); err != nil {
		t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(dir, "*.key"))
	if err != nil || len(keys) < 6 {
		t.Fatalf("want keys, got %v, %v", keys, err)
	}
	for _, key := range keys {
		info, err := os.Stat(key)
		if err != nil {
			t.Fatal(err)
		}
		if want, got := os.FileMode(0o600), info.Mode().Perm(); want != got {
			t.Errorf("%s: want mode %v, got %v", filepath.Base(key), want, got)
		}
	}
}
