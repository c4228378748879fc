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
	// A child is killed when the *thread* that started it ends (see debian.Command).
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the values of the command line.
type options struct {
	processor string
	suites    []string // of the kernel
	tools     []string // suites of packages
	without   []string // modules
	packages  []string
	iptables  string
	here      string // program that a command on this machine uses
	files     []hostFile
	dir       string
	timeout   time.Duration
	cpus      int
	command   []string
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
	flags.StringVar(&o.processor, "processor", runtime.GOARCH, "the machine's processor, by Go's `name`")
	list(&o.suites, "suites", "`list` of Debian's suites of the kernel; the last has priority (default bookworm)")
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
	if o.suites == nil {
		o.suites = []string{debian.Suite}
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
	processor, err := processorOf(o.processor)
	if err != nil {
		return 0, err
	}
	archive, err := debian.Open(o.processor, o.tools...)
	if err != nil {
		return 0, err
	}
	packages, err := archive.Packages(ctx, o.packages...)
	if err != nil {
		return 0, err
	}
	if o.here != "" {
		return o.runHere(ctx, packages, stdout, stderr)
	}
	loader, err := archive.Packages(ctx, busyBox)
	if err != nil {
		return 0, err
	}
	archive.Suites = o.suites
	kernel, err := getKernel(ctx, archive, processor.kernel)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(archive.Dir, "guest-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := o.writeImage(ctx, dir, kernel, loader, packages); err != nil {
		return 0, fmt.Errorf("write the initramfs: %w", err)
	}
	m := machine{processor: processor, image: filepath.Join(kernel, "vmlinuz"), dir: dir, cpus: o.cpus, timeout: o.timeout}
	code, console, err := m.run(ctx, stdout)
	if err != nil || code != 0 {
		for line := range strings.Lines(console) {
			fmt.Fprintf(stderr, "vm: console: %s\n", strings.TrimRight(line, "\r\n"))
		}
	}
	return code, err
}
