package apitest

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// Config is a client configuration for the server, with no limit on the rate of requests.
func (s *Server) Config() *rest.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	conf := &rest.Config{Host: s.http.URL, BearerToken: s.token, QPS: -1}
	if s.opts.Secure {
		conf.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	}
	return conf
}

// Kubeconfig writes a kubeconfig for the server into a folder.
func (s *Server) Kubeconfig(dir string) (path string, err error) {
	conf := s.Config()
	path = filepath.Join(dir, "kubeconfig")
	const text = `apiVersion: v1
kind: Config
clusters: [{name: default, cluster: {server: %q, certificate-authority-data: %q}}]
users: [{name: default, user: {token: %q}}]
contexts: [{name: default, context: {cluster: default, user: default}}]
current-context: default
`
	ca := base64.StdEncoding.EncodeToString(conf.CAData)
	return path, os.WriteFile(path, fmt.Appendf(nil, text, conf.Host, ca, conf.BearerToken), 0o600)
}
