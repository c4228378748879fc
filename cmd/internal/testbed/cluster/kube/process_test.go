package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAllProcessesOfAClusterEndWithIt(t *testing.T) {
	c := newCluster(t)
	p := c.Process("shell")
	p.Args = []string{"sh", "-c", "sleep 1000 & sleep 1000"}
	if err := p.launch(exec.Command(p.Args[0], p.Args[1:]...)); err != nil {
		t.Fatal(err)
	}
	err := Until(t.Context(), startLimit, "wait for the process to be in its group", func() error {
		pids, err := c.inGroups("processes")
		if err == nil && !strings.Contains("\n"+pids, "\n"+strconv.Itoa(p.PID())+"\n") {
			err = os.ErrNotExist
		}
		return err
	}, p)
	if err != nil {
		t.Fatal(err)
	}
	again := c.Process("shell")
	if want, got := p.PID(), again.PID(); want != got {
		t.Errorf("want the process %d to be found again, got %d", want, got)
	}
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	if pid := again.PID(); pid != 0 {
		t.Errorf("process %d still runs", pid)
	}
	if left, err := filepath.Glob("/sys/fs/cgroup/*/" + c.group()); err != nil || len(left) > 0 {
		t.Errorf("there still are groups: %v, %v", left, err)
	}
	if err := again.Stop(t.Context(), unix.SIGTERM); err != nil {
		t.Errorf("stop a process that has ended: %v", err)
	}
}

func TestAProcessIsToldFromALaterOneWithItsID(t *testing.T) {
	stat, err := statOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := Process{ID: os.Getpid(), Born: stat.Starttime}
	if p.PID() == 0 {
		t.Error("this process does not run")
	}
	p.Born++
	if p.PID() != 0 {
		t.Error("a process of another time runs")
	}
}
