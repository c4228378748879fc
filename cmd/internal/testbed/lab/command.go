package lab

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is how long a program may take to end after SIGTERM.
const stopGrace = 5 * time.Second

// Cmd is an exec.Cmd that starts inside a namespace. Of the methods of exec.Cmd those that start a program are
// replaced; the others and the fields are as documented there.
type Cmd struct {
	*exec.Cmd

	ns *Namespace
}

// Command prepares a program to run inside the namespace, found in PATH as
// usual. When ctx ends, the program gets SIGTERM, and SIGKILL five seconds
// later; if this process is killed, it gets SIGKILL at once.
func (ns *Namespace) Command(ctx context.Context, name string, args ...string) *Cmd {
	c := &Cmd{Cmd: exec.CommandContext(ctx, name, args...), ns: ns}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopGrace
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// Start starts the program.
func (c *Cmd) Start() error {
	// A new process is in the network namespace of the thread that forked, and
	// that thread's end is what sends the parent-death signal (prctl(2)): so
	// the thread stays until the program has ended, which is for Wait to collect.
	started := make(chan error, 1)
	go func() {
		err := c.ns.Do(func() error {
			err := c.Cmd.Start()
			if err != nil {
				return err
			}
			pid := c.Process.Pid
			started <- nil
			for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
			}
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	return <-started
}

// Run starts the program and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the program and returns all that it wrote.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}
