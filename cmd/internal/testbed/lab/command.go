package lab

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a program may take to end after SIGTERM.
const stopGrace = 5 * time.Second

// Cmd is an exec.Cmd that starts inside a namespace. Like there, Wait must
// follow Start. Of the methods of exec.Cmd those that start a program are
// replaced; the others and the fields are as documented there.
type Cmd struct {
	*exec.Cmd

	ns     *Namespace
	ended  chan struct{} // closed when the program needs its thread no more
	finish sync.Once
}

// Command prepares a program to run inside the namespace, found in PATH as
// usual. When ctx ends, the program gets SIGTERM, and SIGKILL five seconds
// later; if this process is killed, it gets SIGKILL at once.
func (ns *Namespace) Command(ctx context.Context, name string, args ...string) *Cmd {
	c := &Cmd{Cmd: exec.CommandContext(ctx, name, args...), ns: ns, ended: make(chan struct{})}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = stopGrace
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// Start starts the program.
func (c *Cmd) Start() error {
	// A new process is in the network namespace of the thread that forked, and
	// that thread's end is what sends the parent-death signal (prctl(2)): so
	// the thread stays until Wait has returned.
	started := make(chan error, 1)
	go func() {
		err := c.ns.Do(func() error {
			if err := c.Cmd.Start(); err != nil {
				return err
			}
			started <- nil
			<-c.ended
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	return <-started
}

// Wait waits for the program to end.
func (c *Cmd) Wait() error {
	err := c.Cmd.Wait()
	c.finish.Do(func() { close(c.ended) })
	return err
}

// Run starts the program and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program and returns its standard output. The Stderr of an *exec.ExitError has
// its standard error.
func (c *Cmd) Output() ([]byte, error) {
	var stdout, stderr bytes.Buffer
	if c.Stdout != nil {
		return nil, errors.New("lab: Stdout already set")
	}
	c.Stdout = &stdout
	captured := c.Stderr == nil
	if captured {
		c.Stderr = &stderr
	}
	err := c.Run()
	var exit *exec.ExitError
	if captured && errors.As(err, &exit) {
		exit.Stderr = stderr.Bytes()
	}
	return stdout.Bytes(), err
}

// CombinedOutput runs the program and returns all that it wrote.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("lab: Stdout or Stderr already set")
	}
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}
