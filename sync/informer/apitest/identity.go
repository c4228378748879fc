package apitest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identity has the credentials of the server and of its client.
type identity struct {
	authority, server, client issued
	token                     string
}

// issued is a certificate with its key.
type issued struct {
	tls.Certificate
	certPEM, keyPEM []byte
}

func newIdentity() (id identity, err error) {
	if id.authority, err = issue("kubernetes", nil); err != nil {
		return id, err
	}
	if err := id.renewServer(); err != nil {
		return id, err
	}
	return id, id.renewClient()
}

func (id *identity) renewServer() (err error) {
	id.server, err = issue("kube-apiserver", &id.authority)
	return err
}

func (id *identity) renewClient() (err error) {
	id.token = rand.Text()
	id.client, err = issue("system:kube-proxy", &id.authority)
	return err
}

// RotateServer gives the server a new certificate. Open connections stay.
func (s *Server) RotateServer() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.renewServer()
}

// RotateClient makes another token and another certificate for clients. From now on,
// the ones of before are refused, also on connections that are open; watches go on.
func (s *Server) RotateClient() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.renewClient()
}

func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		ClientAuth: tls.RequestClientCert, // and it is looked at with each request, as in the real server
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.away == BadHandshake {
				return nil, errors.New("no certificate")
			}
			cert := s.identity.server.Certificate
			return &cert, nil
		},
	}
}

// authenticated reports whether the client is known. If not, it responds with 401.
func (s *Server) authenticated(x *exchange) bool {
	if !s.opts.Authenticate {
		return true
	}
	s.mu.Lock()
	token, cert := s.identity.token, s.identity.client.Certificate.Certificate[0]
	s.mu.Unlock()
	if got, ok := strings.CutPrefix(x.r.Header.Get("Authorization"), "Bearer "); ok && got == token {
		return true
	}
	if t := x.r.TLS; t != nil && len(t.PeerCertificates) > 0 && bytes.Equal(t.PeerCertificates[0].Raw, cert) {
		return true
	}
	x.refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	return false
}

// issue makes a certificate for a new key, which an authority signs; nil: it is one itself.
func issue(name string, by *issued) (out issued, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return out, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, crypto.Signer(key)
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.Leaf, by.PrivateKey.(crypto.Signer)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return out, err
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return out, err
	}
	out.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	out.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey})
	out.Certificate, err = tls.X509KeyPair(out.certPEM, out.keyPEM)
	return out, err
}
