package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	config "k8s.io/component-base/config/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Source follows an API server and writes the objects for this node into a [reconcile.State]. All methods but Run may
// be called at any time.
type Source struct {
	Client   *client.Client
	NodeName string // of the only Node to read
	Log      *slog.Logger
	Plain    bool // lists are not to be streamed

	quiet time.Duration // 0: slow

	mu        sync.Mutex
	followers []*follower // by the names of their kinds
}

// Unread returns the kinds without an initial list yet: of these, nothing is known.
func (s *Source) Unread() (kinds []string) {
	s.each(func(f *follower) {
		if !f.complete && !f.lacking {
			kinds = append(kinds, f.name)
		}
	})
	return kinds
}

// Heard returns when the API server last sent something about each kind that made sense, by the kinds'
// names. A kind of which nothing has been received is missing.
func (s *Source) Heard() map[string]time.Time {
	all := map[string]time.Time{}
	s.each(func(f *follower) {
		if !f.heard.IsZero() {
			all[f.name] = f.heard
		}
	})
	return all
}

// Failing returns the kinds of objects that can't be read now, by their names.
func (s *Source) Failing() (failures []Failure) {
	s.each(func(f *follower) {
		if !f.failure.Since.IsZero() {
			failures = append(failures, f.failure)
		}
	})
	return failures
}

func (s *Source) each(do func(*follower)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.followers {
		f.mu.Lock()
		do(f)
		f.mu.Unlock()
	}
}

// Debug returns a log for client-go. All but errors is at Debug level.
func Debug(log *slog.Logger) klog.Logger {
	return logr.FromSlogHandler(log.Handler()).V(-int(slog.LevelDebug))
}

// Run calls Complete when the initial lists are in the state, and then writes each change until ctx ends. Errors of the
// server do not change the state.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.NodeName == "" {
		return errors.New("follow the API server: no node name")
	}
	ctx = klog.NewContext(ctx, Debug(s.Log))
	start := time.Now()

	var all, initial sync.WaitGroup
	s.mu.Lock()
	for _, r := range resources(s.Client, s.NodeName) {
		initial.Add(1)
		f := newFollower(r, s, state, sync.OnceFunc(initial.Done))
		s.followers = append(s.followers, f)
		all.Go(func() { f.run(ctx) })
	}
	s.mu.Unlock()
	initial.Wait()
	if ctx.Err() == nil {
		state.Complete()
		s.Log.Info("initial lists read; watching", slog.Duration("took", time.Since(start)))
	}
	all.Wait()
	return nil
}

// Connect returns a client with a rate limit of its own, as kube-proxy's clientConnection says; master replaces the URL
// in the kubeconfig. If both are empty, the pod's service account is used. It sends no request yet: the server may be
// away.
func Connect(conn config.ClientConnectionConfiguration, master string) (*client.Client, error) {
	conf, err := restConfig(conn, master)
	if err != nil {
		return nil, err
	}
	out, err := client.New(conf)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", conf.Host, err)
	}
	return out, nil
}

// restConfig returns a configuration for client-go's clients. They follow the files with certificates and tokens that
// the kubeconfig names: when they are replaced, no restart is needed. They do not follow the kubeconfig itself.
func restConfig(conn config.ClientConnectionConfiguration, master string) (*rest.Config, error) {
	var out *rest.Config
	var err error
	if conn.Kubeconfig == "" && master == "" {
		if out, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("no kubeconfig and no master is given, and this is no pod: KUBERNETES_SERVICE_HOST is not set")
		}
	} else if out, err = clientcmd.BuildConfigFromFlags(master, conn.Kubeconfig); err != nil {
		if file, ok := errors.AsType[*fs.PathError](err); ok {
			err = file.Err
		}
		err = fmt.Errorf("cannot read the kubeconfig %s: %w", conn.Kubeconfig, err)
	}
	if err != nil {
		return nil, err
	}
	out.QPS, out.Burst = conn.QPS, int(conn.Burst)
	out.ContentType = cmp.Or(conn.ContentType, runtime.ContentTypeProtobuf)
	out.AcceptContentTypes = conn.AcceptContentTypes
	if out.AcceptContentTypes == "" && out.ContentType == runtime.ContentTypeProtobuf {
		out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return out, nil
}
