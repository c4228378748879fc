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
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// identity has the credentials of the server and of its client.
type identity struct {
	authority *authority
	server    tls.Certificate
	client    Credentials
	clientDER []byte
}

// Credentials are those of a client, and the CA of the server; all but the token in PEM.
type Credentials struct {
	CA               []byte // signs the server's certificate
	Certificate, Key []byte // of the client
	Token            string
}

func newIdentity() (identity, error) {
	var id identity
	var err error
	if id.authority, err = newAuthority(); err != nil {
		return id, err
	}
	if err := id.renewServer(); err != nil {
		return id, err
	}
	return id, id.renewClient()
}

func (id *identity) renewServer() error {
	cert, _, _, err := id.authority.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	id.server, id.client.CA = cert, id.authority.pem
	return err
}

func (id *identity) renewClient() error {
	cert, certPEM, keyPEM, err := id.authority.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:kube-proxy"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	id.clientDER = cert.Certificate[0]
	id.client.Certificate, id.client.Key, id.client.Token = certPEM, keyPEM, rand.Text()
	return nil
}

// Credentials are those that are good now.
func (s *Server) Credentials() Credentials {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.client
}

// RotateServer gives the server a new certificate, optionally by a new CA. Open connections
// stay.
func (s *Server) RotateServer(newCA bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newCA {
		a, err := newAuthority()
		if err != nil {
			return fmt.Errorf("make an authority: %w", err)
		}
		s.identity.authority = a
	}
	if err := s.identity.renewServer(); err != nil {
		return fmt.Errorf("make a certificate for the API: %w", err)
	}
	return nil
}

// RotateClient makes another token and another certificate for clients. From now on,
// the ones of before are refused, also on connections that are open; watches go on.
func (s *Server) RotateClient() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.identity.renewClient(); err != nil {
		return fmt.Errorf("make a certificate for clients: %w", err)
	}
	return nil
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
			cert := s.identity.server
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
	token, cert := s.identity.client.Token, s.identity.clientDER
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

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority() (*authority, error) {
	a := &authority{cert: &x509.Certificate{
		// The same name each time, as clusters have it: only the key tells them apart.
		Subject: pkix.Name{CommonName: "kubernetes"},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	cert, certPEM, _, err := a.issue(a.cert)
	if err != nil {
		return nil, err
	}
	a.cert, a.key, a.pem = cert.Leaf, cert.PrivateKey.(crypto.Signer), certPEM
	return a, nil
}

// issue signs a certificate with a new key; with that key if a has none itself.
func (a *authority) issue(template *x509.Certificate) (cert tls.Certificate, certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, nil, err
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return cert, nil, nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), signer)
	if err != nil {
		return cert, nil, nil, err
	}
	rawKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return cert, nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})
	cert, err = tls.X509KeyPair(certPEM, keyPEM)
	return cert, certPEM, keyPEM, err
}
