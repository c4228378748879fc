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
	Name  string
	Space string
	Args  []string // the program first; a change counts from the next Start on

	cluster *Cluster
	id      identity
}

// identity tells a process from a later one with the same ID.
type identity struct {
	PID  int
	Born uint64 // in ticks since the machine started
}

// record is the file of a process.
type record struct {
	Space string
	Args  []string
	identity
}

// Process returns the process with that name. If there is none, it has no Args, and Start fails.
func (c *Cluster) Process(name string) *Process {
	p := &Process{Name: name, cluster: c}
	var r record
	if data, err := os.ReadFile(p.file()); err == nil && json.Unmarshal(data, &r) == nil {
		p.Space, p.Args, p.id = r.Space, r.Args, r.identity
	}
	return p
}

func (p *Process) file() string { return p.cluster.path("process", p.Name+".json") }

// Log returns the file with everything that the process wrote, in all its lives.
func (p *Process) Log() string { return p.cluster.path("log", p.Name+".log") }

// PID returns the process ID, or 0 if the process does not run.
func (p *Process) PID() int {
	if !p.id.alive() {
		return 0
	}
	return p.id.PID
}

// Start starts the process. It is no error if it runs already.
func (p *Process) Start(ctx context.Context) error {
	if p.PID() != 0 {
		return nil
	}
	if len(p.Args) == 0 {
		return fmt.Errorf("start %s: the cluster has no such process", p.Name)
	}
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close()
	// The process outlives the context, which is for the start alone.
	cmd := p.cluster.In(context.WithoutCancel(ctx), p.Space, p.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	return p.launch(cmd, nil)
}

// launch starts a command as this process, in the cluster's control group. prepare, if not nil, is
// called before on the thread that forks.
func (p *Process) launch(cmd *exec.Cmd, prepare func() error) error {
	// A session of its own: signals of the terminal are for this command.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	err := onThread(func() error {
		if prepare != nil {
			if err := prepare(); err != nil {
				return err
			}
		}
		leave, err := p.cluster.groups.start(cmd)
		if err != nil {
			return err
		}
		defer leave()
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() { _ = cmd.Wait() }() // only to have no zombies; Ended asks the kernel
	if p.id, err = identify(cmd.Process.Pid); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, errors.Join(err, p.tail()))
	}
	if err := p.remember(); err != nil {
		return errors.Join(err, p.Stop(context.Background(), unix.SIGKILL))
	}
	return nil
}

// remember writes the file of the process.
func (p *Process) remember() error {
	data, err := json.MarshalIndent(record{p.Space, p.Args, p.id}, "", "  ")
	if err == nil {
		err = os.WriteFile(p.file(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("remember %s: %w", p.Name, err)
	}
	return nil
}

// Stop sends a signal and waits until the process has ended. It is no error if it does not run.
func (p *Process) Stop(ctx context.Context, signal unix.Signal) error {
	if p.PID() == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	defer unix.Close(fd)
	if !p.id.alive() { // what the descriptor stands for may be another process by now
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	const once = 100 // milliseconds
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, once)
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for the end of %s: %w", p.Name, err)
		case ctx.Err() != nil:
			return fmt.Errorf("wait for the end of %s after %v: %w", p.Name, signal, ctx.Err())
		}
	}
}

// Restart stops the process by a signal, and starts it again.
func (p *Process) Restart(ctx context.Context, signal unix.Signal) error {
	if err := p.Stop(ctx, signal); err != nil {
		return err
	}
	return p.Start(ctx)
}

// ended returns an error with the last lines of the log if the process does not run.
func (p *Process) ended() error {
	if p.PID() != 0 {
		return nil
	}
	return fmt.Errorf("%s has ended: %w", p.Name, p.tail())
}

// tail returns the last lines of the log as an error.
func (p *Process) tail() error {
	data, err := os.ReadFile(p.Log())
	if err != nil {
		return err
	}
	const lines = 5
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return fmt.Errorf("%s ends with:\n%s", p.Log(), strings.Join(all[max(0, len(all)-lines):], "\n"))
}

// identify returns the identity of a running process.
func identify(pid int) (identity, error) {
	stat, err := statOf(pid)
	return identity{pid, stat.Starttime}, err
}

// alive says whether that process runs.
func (id identity) alive() bool {
	if id.PID == 0 {
		return false
	}
	stat, err := statOf(id.PID)
	return err == nil && stat.Starttime == id.Born && stat.State != "Z" && stat.State != "X"
}

func statOf(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
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
			if err := p.ended(); err != nil {
				return fmt.Errorf("%s: %w", step, err)
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; the last try: %w", step, context.Cause(ctx), err)
		}
	}
}
