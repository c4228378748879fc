package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Process is a program of the cluster that runs until it is stopped. Its description is a file,
// so that another command can stop it and start it again.
type Process struct {
	Name  string `json:"-"`
	Space string
	Args  []string // the program first; a change counts from the next Start on
	ID    int      `json:"PID"` // of the last one; PID says whether it runs
	Born  uint64   // in ticks since the machine started: a later process with the same ID has another value

	cluster *Cluster
}

// Process returns the process with that name: a program of the control plane, containerd-n1, kubelet-n1 and so on. If
// there is none, it has no Args, and Start fails.
func (c *Cluster) Process(name string) *Process {
	p := &Process{}
	if data, err := os.ReadFile(c.path("process", name+".json")); err != nil || json.Unmarshal(data, p) != nil {
		p = &Process{}
	}
	p.Name, p.cluster = name, c
	return p
}

// PID returns the process ID, or 0 if the process does not run. Of one that was killed, the first thread is a zombie
// while others still hold its ports.
func (p *Process) PID() int {
	stat, err := statOf(p.ID)
	ended := (stat.State == "Z" || stat.State == "X") && stat.NumThreads <= 1
	if err != nil || stat.Starttime != p.Born || ended {
		return 0
	}
	return p.ID
}

func statOf(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// Start starts the process. It is no error if it runs already.
func (p *Process) Start(ctx context.Context) error {
	if p.PID() != 0 {
		return nil
	}
	if len(p.Args) == 0 {
		return fmt.Errorf("start %s: the cluster has no such process", p.Name)
	}
	// The process outlives the context, which is for the start alone.
	return p.launch(p.cluster.In(context.WithoutCancel(ctx), p.Space, p.Args...))
}

// launch starts a command as this process, in the cluster's control group.
func (p *Process) launch(cmd *exec.Cmd) error {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close()
	args := p.cluster.groupsCommand(`echo $$ >"$leading/$name/system/cgroup.procs"; exec "$@"`, cmd.Args...)
	inGroup := exec.Command(args[0], args[1:]...)
	inGroup.Stdout, inGroup.Stderr = log, log
	// A session of its own: signals of the terminal are for this command.
	inGroup.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Err, inGroup.Err); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	if err := inGroup.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() { _ = inGroup.Wait() }() // only to have no zombies; PID asks the kernel
	stat, err := statOf(inGroup.Process.Pid)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, errors.Join(err, p.tail()))
	}
	p.ID, p.Born = inGroup.Process.Pid, stat.Starttime
	if err := p.remember(); err != nil {
		return errors.Join(err, p.Stop(context.Background(), unix.SIGKILL))
	}
	return nil
}

// remember writes the file of the process.
func (p *Process) remember() error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(p.cluster.path("process", p.Name+".json"), data, 0o600)
}

// Stop sends a signal and waits until the process has ended. It is no error if it does not run.
func (p *Process) Stop(ctx context.Context, signal unix.Signal) error {
	if pid := p.PID(); pid != 0 {
		if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop %s: %w", p.Name, err)
		}
	}
	for p.PID() != 0 {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the end of %s after %v: %w", p.Name, signal, ctx.Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// log is the file with everything that the process wrote, in all its lives.
func (p *Process) log() string { return p.cluster.path("log", p.Name+".log") }

// tail returns the last lines of the log as an error.
func (p *Process) tail() error {
	data, err := os.ReadFile(p.log())
	if err != nil {
		return err
	}
	const lines = 5
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return fmt.Errorf("%s ends with:\n%s", p.log(), strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// Until calls ok every moment until it returns nil. After the limit, the error is the last one
// of ok. An error of a needed process that has ended is returned at once.
func Until(ctx context.Context, limit time.Duration, step string, ok func() error, needs ...*Process) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	const pause = 200 * time.Millisecond
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		for _, p := range needs {
			if p.PID() == 0 {
				return fmt.Errorf("%s: %s has ended: %w", step, p.Name, p.tail())
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; the last try: %w", step, context.Cause(ctx), err)
		}
	}
}
