package life

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// tokenPatch mounts a token with a short life where pods have one by default.
//
//go:embed short-lived.json
var tokenPatch string

// shorten gives kubelets certificates, and the Service proxy's pods tokens, that expire soon. The
// pods are replaced, so it comes before the traffic.
func shorten(ctx context.Context, r *Run) error {
	object := program(r.Proxy)
	patch := strings.NewReplacer("SECONDS", strconv.Itoa(int(tokenLife.Seconds())), "PROGRAM", object).Replace(tokenPatch)
	return inTurn(
		signFor(certificateLife.String()),
		eachNode(func(n string) Action {
			return inTurn(
				stopped("kubelet-"+n), on(n, "rm -r /var/lib/kubelet/pki /var/lib/kubelet/kubeconfig"),
				restarted("kubelet-"+n), ready(n),
			)
		}),
		sh("kubectl -n kube-system patch daemonset "+object+" -p '"+patch+"'", rolledOut("kube-system", "daemonset/"+object)),
	)(ctx, r)
}

// signFor changes the life of the certificates that the controller manager signs; without a value, it is the default.
func signFor(life ...string) Action {
	return inTurn(
		func(_ context.Context, r *Run) error {
			return r.SetFlag(controllerManager, "--cluster-signing-duration=", life...)
		},
		restartedControl(controllerManager, unix.SIGTERM),
	)
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
		signFor(),
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
