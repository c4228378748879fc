package apitest

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

// identity has the certificate of the server, which is its own authority, and the token of its client.
type identity struct {
	certPEM []byte
	pair    tls.Certificate
	token   string
}

func newIdentity() (identity, error) {
	id := identity{token: rand.Text()}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err == nil {
		id.certPEM = certPEM
		id.pair, err = tls.X509KeyPair(certPEM, keyPEM)
	}
	if err != nil {
		return id, fmt.Errorf("make a certificate for the API: %w", err)
	}
	return id, nil
}

// RotateToken makes another token for clients. From now on, the one of before is refused, also on connections that are
// open; watches go on.
func (s *Server) RotateToken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity.token = rand.Text()
}

// authenticated reports whether the client is known. If not, it responds with 401.
func (s *Server) authenticated(x *exchange) bool {
	s.mu.Lock()
	token := s.identity.token
	s.mu.Unlock()
	if !s.opts.Authenticate || x.r.Header.Get("Authorization") == "Bearer "+token {
		return true
	}
	x.refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	return false
}
