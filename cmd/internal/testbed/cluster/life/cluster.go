package life

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// BeforeImage is that of vmapd before; the others are kube's.
const BeforeImage = "example.org/vmapd:before"

// Kubernetes' names of what Up starts.
const (
	apiserver         = "kube-apiserver"
	etcd              = "etcd"
	controllerManager = "kube-controller-manager"
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

// sh runs commands as Shell does where the cluster is administered.
func sh(commands ...string) Action { return on(kube.Control, commands...) }

// on runs commands as Shell does.
func on(space string, commands ...string) Action {
	return func(ctx context.Context, r *Run) error {
		_, err := r.Shell(ctx, space, strings.Join(commands, "\n"))
		return err
	}
}

// rolledOut is a command that waits for a DaemonSet or Deployment.
func rolledOut(namespace, object string) string {
	return "kubectl -n " + namespace + " rollout status " + object + " --timeout=10m"
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
	return func(ctx context.Context, r *Run) error {
		if err := r.Process(process).Restart(ctx, signal); err != nil {
			return err
		}
		return r.AwaitAPIServer(ctx)
	}
}

func pause(d time.Duration) Action {
	return func(ctx context.Context, _ *Run) error { return lab.Pause(ctx, d) }
}

// Shell runs commands of a page in a space, with kubectl and its configuration in ~/.kube, until one fails. In the
// space of the control plane, they run in the folder Work, where the folder bin has further programs.
func (r *Run) Shell(ctx context.Context, space, script string) (string, error) {
	r.Log.Info("commands", slog.String("in", space), slog.String("script", script))
	cmd := r.In(ctx, space, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = r.Work
	path := strings.Join([]string{r.KubeDir, filepath.Join(r.Work, "bin"), os.Getenv("PATH")}, ":")
	cmd.Env = append(os.Environ(), "HOME="+r.Work, "PATH="+path)
	out, err := kube.Output(cmd)
	r.Log.Info("output", slog.String("text", out))
	if err != nil {
		err = fmt.Errorf("%w %s", err, out)
	}
	return out, err
}
