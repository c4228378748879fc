package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// subject is the holder of a certificate: a user with groups, and the server of some names.
type subject struct {
	user   string
	groups []string
	names  []string
	ips    []netip.Addr
}

const lifetime = 365 * 24 * time.Hour

// newAuthority makes an authority and writes NAME.crt and NAME.key.
func newAuthority(dir, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	t := certificate(subject{user: "testbed-" + name})
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage |= x509.KeyUsageCertSign
	t.ExtKeyUsage = nil // of what it signs, too
	a := &authority{t, key}
	a.cert, err = a.write(dir, name, t, key)
	return a, err
}

// issue makes a certificate and writes NAME.crt and NAME.key.
func (a *authority) issue(dir, name string, s subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", name, err)
	}
	_, err = a.write(dir, name, certificate(s), key)
	return err
}

func certificate(s subject) *x509.Certificate {
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: s.user, Organization: s.groups},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     s.names,
	}
	for _, ip := range s.ips {
		t.IPAddresses = append(t.IPAddresses, net.IP(ip.AsSlice()))
	}
	return t
}

func (a *authority) write(dir, name string, t *x509.Certificate, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(dir, name+".crt"), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return cert, writeKey(dir, name, key)
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return writePEM(filepath.Join(dir, name+".key"), "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// Users of the API server, each with a certificate NAME.crt and a kubeconfig NAME.conf.
const (
	admin     = "admin"
	bootstrap = "bootstrap" // of a kubelet that has no certificate yet
)

// makePKI makes all certificates, keys and kubeconfigs of a new cluster.
func makePKI(dir string) error {
	ca, err := newAuthority(dir, "ca")
	if err != nil {
		return err
	}
	front, err := newAuthority(dir, "front-ca")
	if err != nil {
		return err
	}
	if err := front.issue(dir, "front", subject{user: frontProxy}); err != nil {
		return err
	}
	if err := ca.issue(dir, "apiserver", server()); err != nil {
		return err
	}
	// The API server is a client of the kubelets.
	if err := ca.issue(dir, "apiserver-client", subject{user: "apiserver-client", groups: []string{"system:masters"}}); err != nil {
		return err
	}
	for name, s := range map[string]subject{
		admin:             {user: "admin", groups: []string{"system:masters"}},
		controllerManager: {user: "system:kube-controller-manager"},
		scheduler:         {user: "system:kube-scheduler"},
		bootstrap:         {user: "system:bootstrap:testbed", groups: []string{bootstrappers}},
	} {
		if err := ca.issue(dir, name, s); err != nil {
			return err
		}
		if err := writeKubeconfig(dir, name); err != nil {
			return err
		}
	}
	return newTokenKey(dir, "sa")
}

// server is the subject of the API server's certificate.
func server() subject {
	v4, v6 := Addresses(Control)
	return subject{
		user:  "kube-apiserver",
		names: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + ClusterDomain},
		ips: []netip.Addr{
			v4, v6, netip.MustParseAddr("127.0.0.1"),
			netip.MustParseAddr(kubernetes4), netip.MustParseAddr(kubernetes6),
		},
	}
}

// newTokenKey makes a key that signs the tokens of ServiceAccounts, and writes NAME.key and NAME.pub.
func newTokenKey(dir, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of ServiceAccounts: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the key of ServiceAccounts: %w", err)
	}
	if err := writePEM(filepath.Join(dir, name+".pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(dir, name, key)
}

// writeKubeconfig writes NAME.conf for the user with the certificate NAME.crt.
func writeKubeconfig(dir, name string) error {
	const one = "testbed"
	conf := clientcmdapi.NewConfig()
	conf.Clusters[one] = &clientcmdapi.Cluster{Server: APIServer(), CertificateAuthority: filepath.Join(dir, "ca.crt")}
	conf.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificate: filepath.Join(dir, name+".crt"), ClientKey: filepath.Join(dir, name+".key"),
	}
	conf.Contexts[one] = &clientcmdapi.Context{Cluster: one, AuthInfo: name}
	conf.CurrentContext = one
	if err := clientcmd.WriteToFile(*conf, filepath.Join(dir, name+".conf")); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", name, err)
	}
	return nil
}

// readAuthority reads an authority that newAuthority has written.
func readAuthority(dir, name string) (*authority, error) {
	cert, err := readPEM(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, err
	}
	key, err := readPEM(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	a := &authority{}
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", name, err)
	}
	private, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("read the key of %s: %w", name, err)
	}
	var ok bool
	if a.key, ok = private.(crypto.Signer); !ok {
		return nil, fmt.Errorf("read the key of %s: a %T signs nothing", name, private)
	}
	return a, nil
}

func readPEM(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM file", file)
	}
	return block.Bytes, nil
}
