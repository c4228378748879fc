package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Names of the files with which a cluster gets vmapd.
const (
	chartName  = "vmapd-chart.tgz"
	deployName = "deploy"
)

// writeDeploy writes the chart and the manifests, as they are in the source, except for the chart's version.
func (r release) writeDeploy(p program) error {
	chart, err := chartArchive(filepath.Join(r.deploy, "chart"), p)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.out, chartName), chart, 0o644); err != nil {
		return err
	}
	if err := copyManifests(filepath.Join(r.out, deployName), r.deploy); err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	return nil
}

// chartArchive packs a chart in the form of "helm package". Links are followed. helm's own libraries would write the time
// of the packing into the archive.
func chartArchive(folder string, p program) ([]byte, error) {
	w := newLayerWriter(p.date)
	if err := walkFiles(folder, func(name string, data []byte) error {
		if name == "Chart.yaml" {
			var err error
			if data, err = withVersion(data, p.version); err != nil {
				return err
			}
		}
		return w.add(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join("vmapd", name), Mode: 0o644, Size: int64(len(data)), ModTime: p.date}, bytes.NewReader(data))
	}); err != nil {
		return nil, err
	}
	if err := w.tar.Close(); err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.Copy(z, &w.buffer)
	err = errors.Join(err, z.Close())
	return packed.Bytes(), err
}

// withVersion gives a Chart.yaml the program's version; appVersion is the image's tag. Without git, it stays as it is.
func withVersion(chart []byte, version string) ([]byte, error) {
	if version == unknown {
		return chart, nil
	}
	for field, value := range map[string]string{"version": strings.TrimPrefix(version, "v"), "appVersion": version} {
		line := regexp.MustCompile(`(?m)^` + field + `: .*$`)
		if n := len(line.FindAllIndex(chart, -1)); n != 1 {
			return nil, fmt.Errorf("file Chart.yaml has %d lines with %s, want one", n, field)
		}
		chart = line.ReplaceAllLiteral(chart, []byte(field+": "+value))
	}
	return chart, nil
}

// copyManifests copies what kubectl and kustomize read: neither pages nor pictures, nor the chart.
func copyManifests(target, source string) error {
	return walkFiles(source, func(name string, data []byte) error {
		first, _, _ := strings.Cut(name, "/")
		if first == "chart" || !slices.Contains([]string{".yaml", ".json", ".sed"}, path.Ext(name)) {
			return nil
		}
		file := filepath.Join(target, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return os.WriteFile(file, data, 0o644)
	})
}

// walkFiles calls a function with each file below a folder, in the order of their names; links are followed.
func walkFiles(folder string, each func(name string, data []byte) error) error {
	return filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return each(filepath.ToSlash(name), data)
	})
}
