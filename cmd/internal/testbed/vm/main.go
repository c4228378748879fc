package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

const (
	exitTimeLimit = 124
	exitFailed    = 125
)

func main() {
	if os.Getpid() == 1 && os.Args[0] == "/init" {
		guest()
	}
	// A child is killed when the *thread* that started it ends (see debian.Command).
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the values of the command line.
type options struct {
	init     string   // this program, for the machine's processor
	suites   []string // of the kernel
	tools    []string // suites of packages
	without  []string // those that can't
	packages []string
	iptables string
	here     string // program that a command on this machine uses
	files    []hostFile
	dir      string
	timeout  time.Duration
	cpus     int
	command  []string
}

// hostFile is a file or folder of the host that the guest has, too.
type hostFile struct{ source, target string }

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: vm [flags] -- COMMAND [ARG]...")
		flags.PrintDefaults()
	}
	list := func(to *[]string, name, usage string) {
		flags.Func(name, usage, func(s string) error {
			*to = append(*to, strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })...)
			return nil
		})
	}
	flags.StringVar(&o.init, "init", "", "this program, built for the machine's processor (`file`; default this program)")
	list(&o.suites, "suites", "`list` of Debian's suites that the kernel is from; the last goes before (default bookworm)")
	list(&o.tools, "packages-suites", "`list` of Debian's suites that the packages are from (default those of the kernel)")
	list(&o.without, "without", "`list` of modules that are left out, with those that need them")
	list(&o.packages, "packages", "`list` of Debian packages to unpack, with what they depend on")
	flags.StringVar(&o.iptables, "iptables", "nft", "what the commands of package iptables are: nft or legacy")
	flags.StringVar(&o.here, "here", "", "run COMMAND on this machine, where this `program` is that of the packages")
	flags.Func("file", "`SRC[:DST]`: a file or folder for the guest; DST is /NAME if not said", func(s string) error {
		source, target, ok := strings.Cut(s, ":")
		if !ok {
			target = "/" + filepath.Base(source)
		}
		if !filepath.IsAbs(target) {
			return fmt.Errorf("%s is not an absolute path", target)
		}
		o.files = append(o.files, hostFile{source, target})
		return nil
	})
	flags.StringVar(&o.dir, "dir", "/", "`folder` of the guest in which COMMAND starts")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "limit of the machine's life")
	flags.IntVar(&o.cpus, "cpus", 2, "the machine's `number` of processors")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.command = flags.Args()
	switch {
	case len(o.command) == 0:
		return nil, errors.New("no COMMAND was given")
	case o.iptables != "nft" && o.iptables != "legacy":
		return nil, fmt.Errorf("--iptables %s: want nft or legacy", o.iptables)
	}
	if o.init == "" {
		var err error
		if o.init, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if o.suites == nil {
		o.suites = []string{"bookworm"}
	}
	if o.tools == nil {
		o.tools = o.suites
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	code := exitFailed
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
		defer stop()
		code, err = o.run(ctx, stdout, stderr)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "vm:", err)
		if errors.Is(err, errTimeLimit) {
			return exitTimeLimit
		}
		return exitFailed
	}
	return code
}

// run prepares the image, runs the machine and returns the command's exit code.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) (int, error) {
	processor, err := processorOf(o.init)
	if err != nil {
		return 0, fmt.Errorf("--init: %w", err)
	}
	folder, err := debian.UserCache()
	if err != nil {
		return 0, err
	}
	c := cache{folder}
	archive := debian.Archive{Cache: folder, Mirror: debian.Mirror, Suites: o.suites, Architecture: processor.debian}
	if o.here != "" {
		archive.Suites = o.tools
		packages, err := archive.Packages(ctx, o.packages)
		if err != nil {
			return 0, err
		}
		return o.runHere(ctx, packages, stdout, stderr)
	}
	kernel, err := getKernel(ctx, archive, processor.kernel)
	if err != nil {
		return 0, err
	}
	archive.Suites = o.tools
	packages, err := archive.Packages(ctx, o.packages)
	if err != nil {
		return 0, err
	}
	loader, err := archive.Packages(ctx, []string{busyBox})
	if err != nil {
		return 0, err
	}
	initrd, err := c.scratch()
	if err != nil {
		return 0, err
	}
	defer initrd.Close()
	if err := o.writeImage(ctx, c, initrd, kernel, loader, packages); err != nil {
		return 0, fmt.Errorf("write the initramfs: %w", err)
	}
	m := machine{processor: processor, image: kernel.image, initrd: initrd, cpus: o.cpus, timeout: o.timeout}
	code, console, err := m.run(ctx, c, stdout)
	if err != nil || code != 0 {
		for line := range strings.Lines(console) {
			fmt.Fprintf(stderr, "vm: console: %s\n", strings.TrimRight(line, "\r\n"))
		}
	}
	return code, err
}

// job is the task of the guest.
type job struct {
	Dir     string
	Command []string
}
