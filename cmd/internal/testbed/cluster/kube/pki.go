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
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newKey makes a key and writes NAME.key.
func newKey(dir, name string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return key, keyutil.WriteKey(filepath.Join(dir, name+".key"), text)
}

// newAuthority makes an authority and writes NAME.crt and NAME.key.
func newAuthority(dir, name string) (*authority, error) {
	key, err := newKey(dir, name)
	if err != nil {
		return nil, err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "testbed-" + name}, key)
	if err != nil {
		return nil, fmt.Errorf("make the authority %s: %w", name, err)
	}
	return &authority{cert, key}, writeCertificate(dir, name, cert)
}

func writeCertificate(dir, name string, cert *x509.Certificate) error {
	text, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return err
	}
	return certutil.WriteCert(filepath.Join(dir, name+".crt"), text)
}

// issue makes a certificate for a client and server, and writes NAME.crt and NAME.key.
func (a *authority) issue(dir, name string, of certutil.Config) error {
	key, err := newKey(dir, name)
	if err != nil {
		return err
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: of.CommonName, Organization: of.Organization},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     of.AltNames.DNSNames,
		IPAddresses:  of.AltNames.IPs,
	}, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	return writeCertificate(dir, name, &x509.Certificate{Raw: der})
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
	if err := front.issue(dir, "front", certutil.Config{CommonName: frontProxy}); err != nil {
		return err
	}
	if err := ca.issue(dir, "apiserver", server()); err != nil {
		return err
	}
	// The API server is a client of the kubelets.
	if err := ca.issue(dir, "apiserver-client", certutil.Config{CommonName: "apiserver-client", Organization: []string{"system:masters"}}); err != nil {
		return err
	}
	for name, s := range map[string]certutil.Config{
		admin:             {CommonName: "admin", Organization: []string{"system:masters"}},
		controllerManager: {CommonName: "system:kube-controller-manager"},
		scheduler:         {CommonName: "system:kube-scheduler"},
		bootstrap:         {CommonName: "system:bootstrap:testbed", Organization: []string{bootstrappers}},
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

// server is whom the API server's certificate is for.
func server() certutil.Config {
	v4, v6 := Addresses(Control)
	return certutil.Config{CommonName: "kube-apiserver", AltNames: certutil.AltNames{
		DNSNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + ClusterDomain},
		IPs:      []net.IP{v4.AsSlice(), v6.AsSlice(), net.IPv4(127, 0, 0, 1), net.ParseIP(kubernetes4), net.ParseIP(kubernetes6)},
	}}
}

// newTokenKey makes a key that signs the tokens of ServiceAccounts, and writes NAME.key and NAME.pub.
func newTokenKey(dir, name string) error {
	key, err := newKey(dir, name)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the key of ServiceAccounts: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: public})
	return os.WriteFile(filepath.Join(dir, name+".pub"), text, 0o600)
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
	certs, err := certutil.CertsFromFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		return nil, err
	}
	private, err := keyutil.PrivateKeyFromFile(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read the key of %s: a %T signs nothing", name, private)
	}
	return &authority{certs[0], key}, nil
}
