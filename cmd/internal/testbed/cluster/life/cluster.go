package life

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// Images of vmapd before and of podserver; the others are kube's.
const (
	BeforeImage = "example.org/vmapd:before"
	PodImage    = "example.org/podserver:1"
	// againSuffix makes a second name of an image, for an upgrade that changes nothing.
	againSuffix = "-again"
)

// Shell runs commands of a page in a space, with kubectl and its configuration in ~/.kube, until one fails. In the space of the
// control plane, they run in the folder Work, whose folder bin has further programs.
func (r *Run) Shell(ctx context.Context, space, script string) (string, error) {
	r.Log.Info("commands", slog.String("in", space), slog.String("script", script))
	cmd := r.In(ctx, space, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = r.Work
	cmd.Env = append(os.Environ(), "HOME="+r.Work, "PATH="+strings.Join([]string{r.KubeDir, filepath.Join(r.Work, "bin"), os.Getenv("PATH")}, ":"))
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	r.Log.Info("output", slog.String("text", out.String()))
	if err != nil {
		return out.String(), fmt.Errorf("%q: %w: %s%s", script, err, out.String(), complaints.String())
	}
	return out.String(), nil
}

// vmapd runs this checkout's vmapd in a space, where it may have rules to remove.
func (r *Run) vmapd(ctx context.Context, space string, args ...string) (string, error) {
	var out, complaints bytes.Buffer
	cmd := r.In(ctx, space, append([]string{filepath.Join(r.Work, "bin/vmapd")}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("vmapd %s: %w: %s", args[0], err, complaints.String())
	}
	return out.String(), nil
}

// space opens the network namespace of a space.
func (r *Run) space(name string) (*lab.Namespace, error) {
	return lab.OpenNamespace(name, fmt.Sprintf("/proc/%d/ns/net", r.Process("space-"+name).PID()))
}

// ip runs ip(8) in a space.
func (r *Run) ip(ctx context.Context, space string, args ...string) error {
	if out, err := r.In(ctx, space, append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s in %s: %w: %s", strings.Join(args, " "), space, err, out)
	}
	return nil
}

// rolledOut waits until a DaemonSet or Deployment is as it should be.
func (r *Run) rolledOut(ctx context.Context, namespace, object string) error {
	_, err := r.Kubectl(ctx, "--namespace="+namespace, "rollout", "status", object, "--timeout=3m")
	return err
}

// until asks every half second until ok.
func until(ctx context.Context, limit time.Duration, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		wait(ctx, 500*time.Millisecond)
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// Kubernetes' names of what Up starts.
const (
	apiserver         = "kube-apiserver"
	etcd              = "etcd"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)
