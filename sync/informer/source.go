package informer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Selectors that keep on the server what is not this proxy's business (kube-proxy has
// the same). The builder checks the labels again: other sources have no server.
const (
	labelSelector   = "!" + model.LabelServiceProxyName + ",!" + model.LabelHeadless
	serviceSelector = "spec.clusterIP!=None"
)

// probeInterval is how often a server that is away is asked for ServiceCIDRs.
const probeInterval = time.Second

// Source feeds a cluster's objects to a reconcile.State.
type Source struct {
	Client   kubernetes.Interface
	NodeName string // of the one Node that is watched
	Log      *slog.Logger
}

// watch is one kind of object.
type watch struct {
	kind     string
	informer cache.SharedIndexInformer
	strip    func(any)
	set      func(*model.Builder, any)
	remove   func(*model.Builder, model.NamespacedName)
}

// Run watches until ctx ends. It calls state.Complete once every kind's first list has
// been written into the state. A server that is away or answers with errors is asked
// again until it answers; Run itself does not fail for that.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	withCIDRs, err := s.hasServiceCIDRs(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	watches := s.watches(withCIDRs)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var synced []cache.DoneChecker
	for _, w := range watches {
		registration, err := s.prepare(w, state)
		if err != nil {
			return fmt.Errorf("watch %ss: %w", w.kind, err)
		}
		// The handler's own sign, not the store's: what is listed counts once it has
		// been written into the state.
		synced = append(synced, registration.HasSyncedChecker())
		running.Go(func() { w.informer.RunWithContext(ctx) })
	}
	for _, checker := range synced {
		select {
		case <-ctx.Done():
			return nil
		case <-checker.Done():
		}
	}
	state.Complete()
	<-ctx.Done()
	return nil
}

func (s *Source) watches(withCIDRs bool) []watch {
	ofOurs := func(o *metav1.ListOptions) { o.LabelSelector = labelSelector }
	services := func(o *metav1.ListOptions) { ofOurs(o); o.FieldSelector = serviceSelector }
	thisNode := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + s.NodeName }
	const allNamespaces, noResync = "", 0
	list := []watch{
		{
			"Service",
			coreinformers.NewFilteredServiceInformer(s.Client, allNamespaces, noResync, nil, services),
			func(o any) { kube.StripService(o.(*corev1.Service)) },
			func(b *model.Builder, o any) { b.SetService(kube.Service(o.(*corev1.Service))) },
			(*model.Builder).DeleteService,
		},
		{
			"EndpointSlice",
			discoveryinformers.NewFilteredEndpointSliceInformer(s.Client, allNamespaces, noResync, nil, ofOurs),
			func(o any) { kube.StripEndpointSlice(o.(*discoveryv1.EndpointSlice)) },
			func(b *model.Builder, o any) { b.SetEndpointSlice(kube.EndpointSlice(o.(*discoveryv1.EndpointSlice))) },
			(*model.Builder).DeleteEndpointSlice,
		},
		{
			"Node",
			coreinformers.NewFilteredNodeInformer(s.Client, noResync, nil, thisNode),
			func(o any) { kube.StripNode(o.(*corev1.Node)) },
			func(b *model.Builder, o any) { b.SetNode(kube.Node(o.(*corev1.Node))) },
			func(b *model.Builder, n model.NamespacedName) { b.DeleteNode(n.Name) },
		},
	}
	if withCIDRs {
		list = append(list, watch{
			"ServiceCIDR",
			networkinginformers.NewFilteredServiceCIDRInformer(s.Client, noResync, nil, ofOurs),
			func(o any) { kube.StripServiceCIDR(o.(*networkingv1.ServiceCIDR)) },
			func(b *model.Builder, o any) { b.SetServiceCIDR(kube.ServiceCIDR(o.(*networkingv1.ServiceCIDR))) },
			func(b *model.Builder, n model.NamespacedName) { b.DeleteServiceCIDR(n.Name) },
		})
	}
	return list
}

// prepare connects an informer with the state.
func (s *Source) prepare(w watch, state *reconcile.State) (cache.ResourceEventHandlerRegistration, error) {
	if err := w.informer.SetTransform(func(o any) (any, error) {
		if _, ok := o.(cache.DeletedFinalStateUnknown); !ok {
			w.strip(o)
		}
		return o, nil
	}); err != nil {
		return nil, err
	}
	complaints := &complaints{log: s.Log, kind: w.kind}
	if err := w.informer.SetWatchErrorHandlerWithContext(complaints.handle); err != nil {
		return nil, err
	}
	set := func(o any) { state.Update(func(b *model.Builder) { w.set(b, o) }) }
	return w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: func(o any) {
			// After a lost watch, what was deleted meanwhile comes as a tombstone.
			key, err := cache.DeletionHandlingObjectToName(o)
			if err != nil {
				return
			}
			state.Update(func(b *model.Builder) {
				w.remove(b, model.NamespacedName{Namespace: key.Namespace, Name: key.Name})
			})
		},
	})
}

// hasServiceCIDRs asks whether the server has ServiceCIDRs and lets us see them. Without
// them, only the dropping of unallocated cluster IPs is missing, so that older servers
// and narrower permissions do. It waits for a server that is away.
func (s *Source) hasServiceCIDRs(ctx context.Context) (bool, error) {
	has := false
	complaints := &complaints{log: s.Log, kind: "ServiceCIDR"}
	err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
		_, err := s.Client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			has = true
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			s.Log.LogAttrs(ctx, slog.LevelInfo, "no ServiceCIDRs: packets to unallocated cluster IPs are not dropped",
				slog.Any("err", err))
		default:
			complaints.handle(ctx, nil, err)
			return false, nil
		}
		return true, nil
	})
	return has, err
}

// complaints logs what a watch suffers from: each thing once a minute, not at each of
// the many tries of a server that is away.
type complaints struct {
	log  *slog.Logger
	kind string

	mu   sync.Mutex
	text string
	at   time.Time
}

func (c *complaints) handle(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // an end, or a watch that was away too long: a new list follows
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err.Error() == c.text && time.Since(c.at) < time.Minute {
		return
	}
	c.text, c.at = err.Error(), time.Now()
	c.log.LogAttrs(ctx, slog.LevelWarn, "watch interrupted; what is known stays",
		slog.String("kind", c.kind), slog.Any("err", err))
}
