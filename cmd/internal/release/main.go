package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

//go:embed packages.lock
var lockFile string

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// processors are Go's names of those that Kubernetes has nodes for.
func processors() []string { return []string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"} }

func run(ctx context.Context, args []string, stdout io.Writer) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	programs := flags.String("programs", "bin", "`folder` with vmapd-ARCH for each processor")
	out := flags.String("out", "bin/release", "`folder` for the result; what it has is deleted")
	list := flags.String("processors", strings.Join(processors(), ","), "`list` of processors, by Go's names")
	from := flags.String("unpack", "", "`layout`: write its image for the one processor to --out, as files")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from != "" {
		i, err := imageOf(*from, *list)
		if err != nil {
			return err
		}
		return unpackImage(ctx, i, *out)
	}
	l, err := parseLock(lockFile)
	if err != nil {
		return fmt.Errorf("packages.lock: %w", err)
	}
	r := release{
		out: *out, programs: *programs, deploy: "cmd/vmapd/deploy",
		processors: strings.Split(*list, ","), lock: l, cache: filepath.Join(cache, "vmapd-release"),
	}
	return r.write(ctx, stdout)
}

// release is all that is published of a version.
type release struct {
	out, programs string
	deploy        string // folder of the chart and the manifests
	processors    []string
	lock          lock
	cache         string // folder of downloads
}

const (
	imageName = "vmapd"      // also the folder of its layout
	listName  = "images.txt" // the image's name, version and digest, as a reference of a registry ends
	sumsName  = "SHA256SUMS" // the checksums of all other files, in the form of sha256sum
)

func (r release) write(ctx context.Context, stdout io.Writer) error {
	// Only a folder that this program made is deleted.
	entries, _ := os.ReadDir(r.out)
	if _, err := os.Stat(filepath.Join(r.out, sumsName)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty, and has no %s of an earlier release", r.out, sumsName)
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	programs := make([]program, len(r.processors))
	for i, arch := range r.processors {
		p, err := readProgram(filepath.Join(r.programs, "vmapd-"+arch), arch)
		if err != nil {
			return err
		}
		if i > 0 && (p.version != programs[0].version || p.commit != programs[0].commit) {
			return fmt.Errorf("%s is of %s, and %s of %s", p.path, p.version, programs[0].path, programs[0].version)
		}
		programs[i] = p
		if _, err := shell(ctx, "", `install -m 755 "$1" "$2"`, p.path, r.out); err != nil {
			return err
		}
	}
	digest, err := r.writeImage(ctx, programs)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	line := fmt.Sprintf("%s:%s@%s\n", imageName, programs[0].version, digest)
	if err := os.WriteFile(filepath.Join(r.out, listName), []byte(line), 0o644); err != nil {
		return err
	}
	_, _ = fmt.Fprint(stdout, line)
	if err := r.writeDeploy(ctx, programs[0]); err != nil {
		return err
	}
	const sum = "find . -type f ! -name " + sumsName + " -printf '%P\\0' | sort -z | xargs -0 sha256sum >" + sumsName
	_, err = shell(ctx, r.out, sum)
	return err
}
