package apitest

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config is a client configuration for the server as it is now, with no limit on the
// rate of requests.
func (s *Server) Config() *rest.Config {
	conf := &rest.Config{Host: s.URL(), QPS: -1}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.TLS {
		conf.CAData = s.identity.certPEM
	}
	if s.opts.Authenticate {
		conf.BearerToken = s.identity.token
	}
	return conf
}

// Kubeconfig writes a kubeconfig for the server into a folder, and the files that it names, with the credentials that
// are good now. Called again, it replaces them, each in one step.
func (s *Server) Kubeconfig(dir string) (path string, err error) {
	s.mu.Lock()
	id := s.identity
	s.mu.Unlock()
	cluster := &clientcmdapi.Cluster{Server: s.URL()}
	user := &clientcmdapi.AuthInfo{TokenFile: "token"}
	files := map[string][]byte{"token": []byte(id.token + "\n")}
	if s.opts.TLS {
		cluster.CertificateAuthority, files["ca.crt"] = "ca.crt", id.certPEM
	}
	files["kubeconfig"], err = clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default": user},
		Contexts:       map[string]*clientcmdapi.Context{"default": {Cluster: "default", AuthInfo: "default"}},
		CurrentContext: "default",
	})
	if err != nil {
		return "", fmt.Errorf("encode a kubeconfig: %w", err)
	}
	for name, data := range files {
		if err := replace(filepath.Join(dir, name), data); err != nil {
			return "", fmt.Errorf("write a kubeconfig: %w", err)
		}
	}
	return filepath.Join(dir, "kubeconfig"), nil
}

func replace(path string, data []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
