package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const kubernetes = "k8s.io/kubernetes"

// build builds a version of kube-proxy in a module of its own, unless that is done already. The
// modules that Kubernetes has in its own repository are replaced by their releases: 0.36.3 for
// 1.36.3.
func build(ctx context.Context, work, version string) (program string, err error) {
	dir := filepath.Join(work, version)
	program = filepath.Join(dir, "kube-proxy")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var download struct{ GoMod string }
	out, err := run(ctx, dir, "go", "mod", "download", "-json", kubernetes+"@v"+version)
	if err == nil {
		err = json.Unmarshal(out, &download)
	}
	if err != nil {
		return "", err
	}
	theirs, err := os.ReadFile(download.GoMod)
	if err != nil {
		return "", err
	}
	ours, err := module(ctx, dir, string(theirs), version)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), ours, 0o644); err != nil {
		return "", err
	}
	_, err = run(ctx, dir, "go", "build", "-mod=mod", "-trimpath",
		"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v"+version,
		"-o", program, kubernetes+"/cmd/kube-proxy")
	return program, err
}

// module returns a go.mod from that of Kubernetes.
func module(ctx context.Context, dir, theirs, version string) ([]byte, error) {
	var b bytes.Buffer
	_, minor, _ := strings.Cut(version, ".")
	fmt.Fprintf(&b, "module kubeproxy\n\nrequire %s v%s\n\n", kubernetes, version)
	for line := range strings.Lines(theirs) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "replace "))
		switch {
		case len(fields) == 2 && fields[0] == "go":
			fmt.Fprintf(&b, "go %s\n", fields[1])
		case len(fields) == 3 && fields[1] == "=>" && strings.HasPrefix(fields[2], "./staging/"):
			release, err := lastRelease(ctx, dir, fields[0], "v0."+minor)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "replace %s => %s %s\n", fields[0], fields[0], release)
		}
	}
	return b.Bytes(), nil
}

// lastRelease returns the release of a module or, if a module proxy lacks it, the last one before.
// The modules are libraries: the proxy itself is in Kubernetes' own module.
func lastRelease(ctx context.Context, dir, path, version string) (string, error) {
	at := strings.LastIndexByte(version, '.') + 1
	patch, err := strconv.Atoi(version[at:])
	if err != nil {
		return "", fmt.Errorf("version %s: %w", version, err)
	}
	for ; patch >= 0; patch-- {
		release := version[:at] + strconv.Itoa(patch)
		if _, err = run(ctx, dir, "go", "mod", "download", path+"@"+release); err == nil {
			return release, nil
		}
	}
	return "", err
}

func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return stdout.Bytes(), nil
}
