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

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// secrets is the folder where a pod finds its token, and the authorities to trust.
const secrets = "var/run/secrets/kubernetes.io/serviceaccount"

// newTokens replaces the key that signs ServiceAccounts' tokens, in the order that keeps all
// valid: the new one signs, both are accepted; kubelets bring new tokens to the pods; the old one is
// no longer accepted. Kubelets keep tokens in memory until shortly before their end, so they are
// restarted.
func newTokens(ctx context.Context, r *Run) error {
	const signs, accepts = "--service-account-signing-key-file=", "--service-account-key-file="
	before, err := r.secrets(ctx, "token")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("sa-%d", time.Now().Unix())
	key := filepath.Join(r.Dir, "pki", name)
	return inTurn(
		func(ctx context.Context, r *Run) error {
			return errors.Join(
				r.PKI(ctx, "token_key "+name),
				r.SetFlag(apiserver, signs, key+".key"),
				r.SetFlag(apiserver, accepts, append(r.Flags(apiserver, accepts), key+".pub")...),
			)
		},
		restartedControl(apiserver, unix.SIGKILL),
		restartClients,
		// kubelet looks after volumes every minute or so.
		secretsAre("token", func(pod string, now []byte) bool { return !bytes.Equal(now, before[pod]) }),
		func(_ context.Context, r *Run) error { return r.SetFlag(apiserver, accepts, key+".pub") },
		restartedControl(apiserver, unix.SIGKILL),
		change("after-the-new-key"),
	)(ctx, r)
}

// newAuthority replaces the certificate authority of the API server's certificate, in the order
// that keeps all valid: both authorities are trusted, by pods, too; then the new one's certificate is used. The
// certificates of kubelets are still signed by the first: the controller manager refuses a file of several certificates.
func newAuthority(ctx context.Context, r *Run) error {
	pki := filepath.Join(r.Dir, "pki")
	if err := errors.Join(
		r.PKI(ctx, "authority ca-new; [ -e ca-first.crt ] || cp ca.crt ca-first.crt; cat ca-new.crt >>ca.crt"),
		r.SetFlag(controllerManager, "--cluster-signing-cert-file=", filepath.Join(pki, "ca-first.crt")),
	); err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return err
	}
	return inTurn(
		restartClients,
		secretsAre("ca.crt", func(_ string, now []byte) bool {
			return bytes.Equal(bytes.TrimSpace(now), bytes.TrimSpace(want))
		}),
		func(ctx context.Context, r *Run) error { return r.PKI(ctx, "issue_server ca-new") },
		restartedControl(apiserver, unix.SIGKILL),
		change("after-the-new-authority"),
	)(ctx, r)
}

// restartClients restarts Kubernetes' own clients of the API server, which read some files only
// when they start.
func restartClients(ctx context.Context, r *Run) error {
	return inTurn(
		restarted(controllerManager), restarted("kube-scheduler"),
		eachNode(func(n string) Action { return restarted("kubelet-" + n) }),
	)(ctx, r)
}

// secretsAre waits until a file fits in all pods of the Service proxy.
func secretsAre(file string, fits func(pod string, now []byte) bool) Action {
	return func(ctx context.Context, r *Run) error {
		return kube.Until(ctx, 4*time.Minute, "wait for another "+file, func() error {
			now, err := r.secrets(ctx, file)
			for pod, text := range now {
				if !fits(pod, text) {
					err = errors.Join(err, fmt.Errorf("pod %s has its former %s", pod, file))
				}
			}
			return err
		})
	}
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
