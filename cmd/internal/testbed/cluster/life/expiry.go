package life

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// Lives that make kubelets replace certificates and tokens while a step waits. The API server gives
// no token a shorter one.
const (
	certificateLife = 4 * time.Minute
	tokenLife       = 10 * time.Minute
)

// shorten gives kubelets certificates, and the Service proxy's pods tokens, that expire soon. The
// pods are replaced, so it comes before the traffic.
func shorten(ctx context.Context, r *Run) error {
	object := program(r.Proxy)
	patch, err := json.Marshal(tokenPatch(object))
	if err != nil {
		return fmt.Errorf("make a patch of %s: %w", object, err)
	}
	return inTurn(
		signFor(certificateLife),
		eachNode(func(n string) Action {
			return inTurn(
				stopped("kubelet-"+n), script(n, "rm -r /var/lib/kubelet/pki /var/lib/kubelet/kubeconfig"),
				restarted("kubelet-"+n), ready(n),
			)
		}),
		kubectl("-n", "kube-system", "patch", "daemonset", object, "-p", string(patch)),
		rolledOut("kube-system", "daemonset/"+object),
	)(ctx, r)
}

// signFor changes the life of the certificates that the cluster signs; 0 is the default.
func signFor(d time.Duration) Action {
	return inTurn(
		func(_ context.Context, r *Run) error { return r.SignFor(d) },
		restartedControl(controllerManager, unix.SIGTERM),
	)
}

// tokenPatch mounts a token with a short life where pods have one by default.
func tokenPatch(program string) any {
	type m = map[string]any
	return m{"spec": m{"template": m{"spec": m{
		"automountServiceAccountToken": false,
		"volumes": []m{{"name": "short-lived", "projected": m{"sources": []m{
			{"serviceAccountToken": m{"path": "token", "expirationSeconds": int(tokenLife.Seconds())}},
			{"configMap": m{"name": "kube-root-ca.crt", "items": []m{{"key": "ca.crt", "path": "ca.crt"}}}},
		}}}},
		"containers": []m{{"name": program, "volumeMounts": []m{{"name": "short-lived", "mountPath": "/" + secrets, "readOnly": true}}}},
	}}}}
}

// expire waits until kubelets have replaced the certificates and tokens by themselves, and the former
// ones have expired.
func expire(ctx context.Context, r *Run) error {
	certificates, err := r.certificates(ctx)
	if err != nil {
		return err
	}
	tokens, err := r.secrets(ctx, "token")
	if err != nil {
		return err
	}
	return inTurn(
		secretsAre(tokenLife, "token", func(pod string, now []byte) bool { return !bytes.Equal(now, tokens[pod]) }),
		func(ctx context.Context, r *Run) error { // which have a shorter life
			now, err := r.certificates(ctx)
			for node, c := range now {
				if c == certificates[node] {
					err = errors.Join(err, fmt.Errorf("kubelet of %s has its former certificate", node))
				}
			}
			return err
		},
		pause(tokenLife/5), // kubelet replaces a token after four fifths of its life
		signFor(0),
		change("after-the-expiry"),
	)(ctx, r)
}

// certificates returns the names of the files with kubelets' certificates, each of which is
// written once.
func (r *Run) certificates(ctx context.Context) (map[string]string, error) {
	names := map[string]string{}
	for _, n := range r.Nodes() {
		var err error
		if names[n], err = kube.Output(r.In(ctx, n, "readlink", "/var/lib/kubelet/pki/kubelet-client-current.pem")); err != nil {
			return nil, err
		}
	}
	return names, nil
}
