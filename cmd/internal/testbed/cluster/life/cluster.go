package life

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

const (
	// BeforeImage is that of vmapd before; the others are kube's.
	BeforeImage = "example.org/vmapd:before"
	// againSuffix makes a second name of an image, for an upgrade that changes nothing.
	againSuffix = "-again"
)

// Kubernetes' names of what Up starts.
const (
	apiserver         = "kube-apiserver"
	etcd              = "etcd"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// An Action is a part of a step.
type Action func(context.Context, *Run) error

// inTurn does one action after the other, until one fails.
func inTurn(all ...Action) Action {
	return func(ctx context.Context, r *Run) error {
		for _, do := range all {
			if err := do(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// eachNode does an action for one node after the other.
func eachNode(do func(node string) Action) Action {
	return func(ctx context.Context, r *Run) error {
		for _, n := range r.Nodes() {
			if err := do(n)(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
}

func kubectl(args ...string) Action {
	return func(ctx context.Context, r *Run) error {
		_, err := r.Kubectl(ctx, args...)
		return err
	}
}

func rolledOut(namespace, object string) Action {
	return func(ctx context.Context, r *Run) error { return r.RolledOut(ctx, namespace, object) }
}

func ready(node string) Action {
	return func(ctx context.Context, r *Run) error { return r.AwaitNode(ctx, node) }
}

// stopped ends a process without notice.
func stopped(process string) Action {
	return func(ctx context.Context, r *Run) error { return r.Process(process).Stop(ctx, unix.SIGKILL) }
}

// restarted restarts a process that is no part of the control plane.
func restarted(process string) Action {
	return func(ctx context.Context, r *Run) error { return r.Process(process).Restart(ctx, unix.SIGTERM) }
}

// restartedControl restarts, or starts, a process of the control plane, and waits for the API server.
func restartedControl(process string, signal unix.Signal) Action {
	return func(ctx context.Context, r *Run) error { return r.RestartControlPlane(ctx, process, signal) }
}

// ip runs ip(8) in a space.
func ip(space string, args ...string) Action {
	return func(ctx context.Context, r *Run) error {
		return kube.Run(r.In(ctx, space, append([]string{"ip"}, args...)...))
	}
}

// script runs commands as Shell does.
func script(space, text string) Action {
	return func(ctx context.Context, r *Run) error {
		_, err := r.Shell(ctx, space, text)
		return err
	}
}

func pause(d time.Duration) Action {
	return func(ctx context.Context, _ *Run) error {
		wait(ctx, d)
		return nil
	}
}

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
		err = fmt.Errorf("%q: %w: %s%s", script, err, out.String(), complaints.String())
	}
	return out.String(), err
}
