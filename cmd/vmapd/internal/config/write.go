package config

import (
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// Write writes the effective configuration of kube-proxy, as a file for --config. The file
// lacks vmapd's own settings, and it cannot disable health or metrics.
func (c *Config) Write(w io.Writer) error {
	data, err := yaml.Marshal(c.kubeProxy)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// WriteFile is like Write, to a file.
func (c *Config) WriteFile(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	return c.Write(file)
}
