package life

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
	if err := r.signFor(ctx, certificateLife); err != nil {
		return err
	}
	for _, n := range r.Nodes() {
		kubelet := r.Process("kubelet-" + n)
		if err := kubelet.Stop(ctx, unix.SIGTERM); err != nil {
			return err
		}
		if _, err := r.Shell(ctx, n, "rm -r /var/lib/kubelet/pki /var/lib/kubelet/kubeconfig"); err != nil {
			return err
		}
		if err := kubelet.Start(ctx); err != nil {
			return err
		}
		if err := r.AwaitNode(ctx, n); err != nil {
			return err
		}
	}
	program, _, _ := strings.Cut(r.Proxy, ":")
	patch, err := json.Marshal(tokenPatch(program))
	if err != nil {
		return fmt.Errorf("make a patch of %s: %w", program, err)
	}
	if _, err := r.Kubectl(ctx, "-n", "kube-system", "patch", "daemonset", program, "-p", string(patch)); err != nil {
		return err
	}
	return r.rolledOut(ctx, "kube-system", "daemonset/"+program)
}

// signFor changes the life of the certificates that the cluster signs; 0 is the default.
func (r *Run) signFor(ctx context.Context, d time.Duration) error {
	if err := r.SignFor(d); err != nil {
		return err
	}
	return r.RestartControlPlane(ctx, controllerManager, unix.SIGTERM)
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
	err = until(ctx, tokenLife, func() error {
		newCertificates, certErr := r.certificates(ctx)
		newTokens, tokenErr := r.secrets(ctx, "token")
		errs := []error{certErr, tokenErr}
		for node, c := range newCertificates {
			if c == certificates[node] {
				errs = append(errs, fmt.Errorf("kubelet of %s has its former certificate", node))
			}
		}
		for pod, t := range newTokens {
			if bytes.Equal(t, tokens[pod]) {
				errs = append(errs, fmt.Errorf("pod %s has its former token", pod))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	wait(ctx, tokenLife/5) // kubelet replaces a token after four fifths of its life
	if err := r.signFor(ctx, 0); err != nil {
		return err
	}
	return r.change(ctx, "after-the-expiry")
}

// certificates returns the names of the files with kubelets' certificates, each of which is
// written once.
func (r *Run) certificates(ctx context.Context) (map[string]string, error) {
	names := map[string]string{}
	for _, n := range r.Nodes() {
		out, err := r.In(ctx, n, "readlink", "/var/lib/kubelet/pki/kubelet-client-current.pem").Output()
		if err != nil {
			return nil, fmt.Errorf("find the certificate of %s's kubelet: %w", n, err)
		}
		names[n] = string(out)
	}
	return names, nil
}
