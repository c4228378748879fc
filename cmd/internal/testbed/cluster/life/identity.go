package life

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// newTokens replaces the key that signs ServiceAccounts' tokens, in the order that keeps all
// valid: the new one signs, both are accepted; kubelets bring new tokens to the pods; the old one is
// no longer accepted. Kubelets keep tokens in memory until shortly before their end, so they are
// restarted.
func newTokens(ctx context.Context, r *Run) error {
	const signs, accepts = "--service-account-signing-key-file=", "--service-account-key-file="
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
		sh("touch new-key"),
		restartClients,
		// kubelet looks after volumes every minute or so.
		secretsAre("token", `[ "$f" -nt new-key ]`),
		func(_ context.Context, r *Run) error { return r.SetFlag(apiserver, accepts, key+".pub") },
		restartedControl(apiserver, unix.SIGKILL),
		change("after-the-new-key"),
	)(ctx, r)
}

// newAuthority replaces the certificate authority of the API server's certificate, in the order that keeps all valid:
// both authorities are trusted, by pods, too; then the new one's certificate is used. The first still signs
// certificates of kubelets: the controller manager refuses a file of several certificates.
func newAuthority(ctx context.Context, r *Run) error {
	pki := filepath.Join(r.Dir, "pki")
	if err := errors.Join(
		r.PKI(ctx, "authority ca-new; [ -e ca-first.crt ] || cp ca.crt ca-first.crt; cat ca-new.crt >>ca.crt"),
		r.SetFlag(controllerManager, "--cluster-signing-cert-file=", filepath.Join(pki, "ca-first.crt")),
	); err != nil {
		return err
	}
	return inTurn(
		restartClients,
		secretsAre("ca.crt", `[ "$(cat "$f")" = "$(cat `+filepath.Join(pki, "ca.crt")+`)" ]`),
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

// secretsAre waits until a file that kubelets keep for each pod fits on all nodes. fits is a condition of the shell
// about the file f, in the folder Work.
func secretsAre(file, fits string) Action {
	const each = `cd %s
for f in /var/lib/kubelet/pods/*/volumes/kubernetes.io~projected/kube-api-access-*/%s; do
  %s || { echo "it is the former one: $f" >&2; exit 1; }
done`
	return func(ctx context.Context, r *Run) error {
		return kube.Until(ctx, 4*time.Minute, "wait for another "+file, func() (err error) {
			for _, n := range r.Nodes() {
				err = errors.Join(err, kube.Run(r.In(ctx, n, "bash", "-euc", fmt.Sprintf(each, r.Work, file, fits))))
			}
			return err
		})
	}
}
