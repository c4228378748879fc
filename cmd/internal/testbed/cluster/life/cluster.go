package life

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// BeforeImage is that of vmapd before; the others are kube's.
const BeforeImage = "example.org/vmapd:before"

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
