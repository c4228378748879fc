package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	switch {
	case os.Getpid() == 1 && os.Args[0] == "/init":
		guest()
	case filepath.Base(os.Args[0]) == "modprobe":
		os.Exit(modprobe(os.Args[1:], os.Stderr))
	}
	// A child is killed when the *thread* that started it ends (see debian.Command).
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are the values of the command line.
type options struct {
	init      string // this program, for the machine's processor
	mirror    string
	suites    []string // of the kernel
	tools     []string // suites of packages
	kernel    string   // empty: the processor's default
	modules   []string // to load, in this order
	available []string // patterns of those that can be loaded
	without   []string // those that can't
	packages  []string
	iptables  string
	here      string // program that a command on this machine uses
	files     []hostFile
	dir       string
	timeout   time.Duration
	memory    int
	cpus      int
	cache     string
	verbose   bool
	command   []string
}

// hostFile is a file or folder of the host that the guest has, too.
type hostFile struct{ source, target string }

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{available: []string{"*"}}
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
	flags.StringVar(&o.init, "init", "/proc/self/exe", "this program, built for the machine's processor (`file`; default this program)")
	flags.StringVar(&o.mirror, "mirror", "http://deb.debian.org", "`URL` that has Debian's folders debian and debian-security")
	list(&o.suites, "suites", "`list` of Debian's suites that the kernel is from; the last goes before (default bookworm)")
	list(&o.tools, "packages-suites", "`list` of Debian's suites that the packages are from (default those of the kernel)")
	flags.StringVar(&o.kernel, "kernel", "", "Debian `package` of the kernel, or one that depends on it (default depends on the processor)")
	list(&o.modules, "modules", "kernel modules to load before COMMAND (`list`, with commas)")
	flags.Func("available", "`list` of patterns: modules that can be loaded later (default *)", func(s string) error {
		o.available = strings.Split(s, ",")
		return nil
	})
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
	flags.IntVar(&o.memory, "memory", 2048, "the machine's memory in `MiB`")
	flags.IntVar(&o.cpus, "cpus", 2, "the machine's `number` of processors")
	flags.StringVar(&o.cache, "cache", "", "`folder` for what is downloaded (default vmapd-vm in the user's cache folder)")
	flags.BoolVar(&o.verbose, "verbose", false, "tell what takes how long, and show the kernel's console")
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
		o.suites = []string{"bookworm"}
	}
	if o.tools == nil {
		o.tools = o.suites
	}
	if o.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a cache folder (--cache): %w", err)
		}
		o.cache = filepath.Join(dir, "vmapd-vm")
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
	start := time.Now()
	lap := func(what string) {
		if o.verbose {
			fmt.Fprintf(stderr, "vm: %5.1f s: %s\n", time.Since(start).Seconds(), what)
		}
	}
	processor, err := processorOf(o.init)
	if err != nil {
		return 0, fmt.Errorf("--init: %w", err)
	}
	c := cache{debian.Cache{Dir: o.cache}}
	archive := debian.Archive{Cache: c.Cache, Mirror: o.mirror, Suites: o.suites, Architecture: processor.debian}
	if o.here != "" {
		archive.Suites = o.tools
		packages, err := archive.Packages(ctx, o.packages)
		if err != nil {
			return 0, err
		}
		return o.runHere(ctx, packages, stdout, stderr)
	}
	kernel, err := getKernel(ctx, archive, cmp.Or(o.kernel, processor.kernel))
	if err != nil {
		return 0, err
	}
	lap("kernel ready: " + kernel.image)
	archive.Suites = o.tools
	packages, err := archive.Packages(ctx, o.packages)
	if err != nil {
		return 0, err
	}
	lap("packages ready")
	modules, err := kernel.modules.choose(o.available, append(consoleModules(kernel.modules), o.modules...), o.without)
	if err != nil {
		return 0, err
	}
	initrd, err := c.scratch()
	if err != nil {
		return 0, err
	}
	defer initrd.Close()
	if err := o.writeImage(initrd, kernel, modules, packages); err != nil {
		return 0, fmt.Errorf("write the initramfs: %w", err)
	}
	lap("initramfs ready")
	m := machine{processor: processor, image: kernel.image, initrd: initrd, memory: o.memory, cpus: o.cpus, timeout: o.timeout}
	code, console, err := m.run(ctx, c, stdout)
	lap("machine is off")
	if err != nil || code != 0 || o.verbose {
		for line := range strings.Lines(console) {
			fmt.Fprintf(stderr, "vm: console: %s\n", strings.TrimRight(line, "\r\n"))
		}
	}
	return code, err
}

// job is the task of the guest.
type job struct {
	Modules []string
	Dir     string
	Command []string
}

func (o *options) job() ([]byte, error) {
	return json.Marshal(job{o.modules, o.dir, o.command})
}
