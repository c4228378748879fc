package life

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// secrets is the folder where a pod finds its token, and the authorities to trust.
const secrets = "var/run/secrets/kubernetes.io/serviceaccount"

// newTokens replaces the key that signs ServiceAccounts' tokens, in the order that keeps all
// valid: the new one signs, both are accepted; kubelets bring new tokens to the pods; the old one is
// no longer accepted. Kubelets keep tokens in memory until shortly before their end, so they are
// restarted.
func newTokens(ctx context.Context, r *Run) error {
	before, err := r.secrets(ctx, "token")
	if err != nil {
		return err
	}
	if err := r.AddTokenKey(); err != nil {
		return err
	}
	if err := r.RestartControlPlane(ctx, apiserver, unix.SIGKILL); err != nil {
		return err
	}
	if err := r.restartClients(ctx); err != nil {
		return err
	}
	// kubelet looks after volumes every minute or so.
	err = until(ctx, 4*time.Minute, func() error {
		now, err := r.secrets(ctx, "token")
		for pod, token := range now {
			if bytes.Equal(token, before[pod]) {
				err = errors.Join(err, fmt.Errorf("pod %s has its former token", pod))
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.DropTokenKeys(); err != nil {
		return err
	}
	if err := r.RestartControlPlane(ctx, apiserver, unix.SIGKILL); err != nil {
		return err
	}
	return r.change(ctx, "after-the-new-key")
}

// newAuthority replaces the certificate authority of the API server's certificate, in the order
// that keeps all valid: both authorities are trusted, by pods, too; then the new one's certificate is used.
func newAuthority(ctx context.Context, r *Run) error {
	if err := r.AddAuthority(); err != nil {
		return err
	}
	if err := r.restartClients(ctx); err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(r.Dir, "pki/ca.crt"))
	if err != nil {
		return err
	}
	err = until(ctx, 4*time.Minute, func() error {
		now, err := r.secrets(ctx, "ca.crt")
		for pod, trusted := range now {
			if !bytes.Equal(bytes.TrimSpace(trusted), bytes.TrimSpace(want)) {
				err = errors.Join(err, fmt.Errorf("pod %s does not trust the new authority", pod))
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := r.UseAuthority(); err != nil {
		return err
	}
	if err := r.RestartControlPlane(ctx, apiserver, unix.SIGKILL); err != nil {
		return err
	}
	return r.change(ctx, "after-the-new-authority")
}

// restartClients restarts Kubernetes' own clients of the API server, which read some files only
// when they start.
func (r *Run) restartClients(ctx context.Context) error {
	clients := []string{controllerManager, scheduler}
	for _, n := range r.Nodes() {
		clients = append(clients, "kubelet-"+n)
	}
	for _, p := range clients {
		if err := r.restart(ctx, p, unix.SIGTERM); err != nil {
			return err
		}
	}
	return nil
}

// secrets returns a file that kubelet keeps in each pod of the Service proxy, by the pod's name.
func (r *Run) secrets(ctx context.Context, file string) (map[string][]byte, error) {
	const each = `{range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{"\n"}{end}`
	out, err := r.Kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app in (vmapd, kube-proxy)", "-o", "jsonpath="+each)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 2 { // it is being deleted
			continue
		}
		pod, uid := words[0], words[1]
		pids, err := processes(uid)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			// In some images, /var/run is a symbolic link to /run.
			for _, dir := range []string{secrets, strings.TrimPrefix(secrets, "var/")} {
				if text, err := os.ReadFile(filepath.Join("/proc", pid, "root", dir, file)); err == nil {
					files[pod] = text
				}
			}
		}
		if files[pod] == nil {
			return nil, fmt.Errorf("pod %s has no process with a file %s", pod, file)
		}
	}
	return files, nil
}
