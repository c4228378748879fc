package config

import (
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

// Write writes kube-proxy's configuration as it is in force, as a file for --config. It
// leaves out what no such file can say: our settings, and that health or metrics are not
// served.
func (c *Config) Write(w io.Writer) error {
	data, err := yaml.Marshal(c.kubeProxy)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// WriteFile writes to a file what Write writes.
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
