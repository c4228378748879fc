package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	manifests "github.com/vmapd/vmapd/testdata/demo"
)

// port is where the pods of the demo's world serve.
const port = 8080

// demo is one run.
type demo struct {
	out   io.Writer
	vmapd string // the program

	world   *lab.World
	proxy   *lab.Daemon
	folder  string // of the manifests that vmapd follows
	asked   int
	wrong   int
	started time.Time
}

// run builds the world, makes the connections, and removes everything. It returns an error if a
// result was wrong.
func (d *demo) run(ctx context.Context) (err error) {
	d.started = time.Now()
	if d.folder, err = os.MkdirTemp("", "vmapd-demo-"); err != nil {
		return fmt.Errorf("make folder for manifests: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	if err := d.write("before"); err != nil {
		return err
	}

	d.printf("A client, a node and three pods, each in a network namespace of its own.\n")
	if d.world, err = lab.New(ctx, lab.Config{Pods: 3, Ports: []uint16{port}}); err != nil {
		return fmt.Errorf("build the world: %w", err)
	}
	defer func() { err = errors.Join(err, d.world.Close()) }()

	start := time.Now()
	d.proxy, err = d.world.Node.Start(ctx, d.vmapd, "--from", d.folder, "--hostname-override", lab.NodeName,
		"--socket=", // no file beside its own
		"--cluster-cidr", lab.PodRange4+","+lab.PodRange6, "-v", "4")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.proxy.End(syscall.SIGTERM)) }()
	if err := d.waitFor(ctx, "msg=ready"); err != nil {
		return err
	}
	d.printf("vmapd runs in the node and has programmed two Services, %v after its start.\n\n",
		time.Since(start).Round(time.Millisecond))

	for _, step := range []func(context.Context) error{d.connections, d.refusals, d.rollout} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.verdict()
}

// waitFor waits until vmapd has logged a text once more.
func (d *demo) waitFor(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return d.proxy.Await(ctx, text)
}

// next is what to try after the demo.
const next = `
Next, why a connection is forwarded to these pods:

  bin/vmapd explain -f testdata/demo/before --from node 172.30.0.10:80

README.md has the same for the objects of your own cluster, and the page.
`

func (d *demo) verdict() error {
	took := time.Since(d.started).Round(100 * time.Millisecond)
	if d.wrong > 0 {
		d.printf("\nFAILED: %d of %d connections had an unexpected result (%v).\nvmapd's log:\n%s",
			d.wrong, d.asked, took, &d.proxy.Log)
		return errors.New("a result was wrong")
	}
	d.printf("\nOK: all %d connections had the expected result (%v).\n%s", d.asked, took, next)
	return nil
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// write copies the manifests of one folder to the folder that vmapd follows. It replaces each
// file as a whole, so that vmapd never reads half a file.
func (d *demo) write(from string) error {
	files, err := fs.ReadDir(manifests.Manifests, from)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	for _, f := range files {
		target := filepath.Join(d.folder, f.Name())
		text, err := fs.ReadFile(manifests.Manifests, from+"/"+f.Name())
		if err == nil {
			err = os.WriteFile(target+".new", text, 0o644)
		}
		if err == nil {
			err = os.Rename(target+".new", target)
		}
		if err != nil {
			return fmt.Errorf("copy manifests: %w", err)
		}
	}
	return nil
}
