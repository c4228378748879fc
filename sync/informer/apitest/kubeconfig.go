package apitest

import (
	"encoding/pem"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	cluster := &clientcmdapi.Cluster{Server: conf.Host, CertificateAuthorityData: conf.CAData}
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default": {Token: conf.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"default": {Cluster: "default", AuthInfo: "default"}},
		CurrentContext: "default",
	}, path)
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	return path, nil
}
