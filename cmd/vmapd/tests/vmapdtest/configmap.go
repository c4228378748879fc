package vmapdtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// ConfigMap is a volume as the kubelet mounts and updates it: files are links through
// ..data, which is replaced in one step (pkg/volume/util/atomic_writer.go).
type ConfigMap struct {
	Dir     string
	version int
}

// NewConfigMap makes one with these files.
func NewConfigMap(t *testing.T, files map[string]string) *ConfigMap {
	t.Helper()
	m := &ConfigMap{Dir: t.TempDir()}
	m.Set(t, files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Path is that of a file.
func (m *ConfigMap) Path(name string) string { return filepath.Join(m.Dir, name) }

// Set replaces all files at once.
func (m *ConfigMap) Set(t *testing.T, files map[string]string) {
	t.Helper()
	data := func(version int) string { return fmt.Sprintf("..2026_11_21_%d", version) }
	m.version++
	dir := m.Path(data(m.version))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		testaid.Write(t, filepath.Join(dir, name), text)
	}
	err := os.Symlink(data(m.version), m.Path("..data_tmp"))
	if err == nil {
		err = os.Rename(m.Path("..data_tmp"), m.Path("..data"))
	}
	if err := errors.Join(err, os.RemoveAll(m.Path(data(m.version-1)))); err != nil {
		t.Fatal(err)
	}
}
