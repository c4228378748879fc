package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
)

// Pod is a namespace behind the node.
type Pod struct {
	*Namespace

	IP4, IP6 netip.Addr
	Link     string // the node's interface towards it

	mu      sync.Mutex
	servers []*Server
}

// Serve starts a server that answers with the pod's name. It ends with the
// pod, or before that by its Close.
func (p *Pod) Serve(port uint16) (*Server, error) {
	s, err := p.Namespace.Serve(p.Name(), port)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers = append(p.servers, s)
	return s, nil
}

// Close stops the servers and gives up the namespace. RemovePod and World.Close
// do it; by itself it leaves the pod in the world as one that answers nothing.
func (p *Pod) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.servers {
		s.Close()
	}
	p.servers = nil
	return p.Namespace.Close()
}

// Pods returns the pods, oldest first.
func (w *World) Pods() []*Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pods)
}

// Pod returns the pod of that name.
func (w *World) Pod(name string) (*Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, err := w.find(name)
	if err != nil {
		return nil, err
	}
	return w.pods[i], nil
}

// AddPod makes a pod that answers on the world's ports; when AddPod returns,
// it does. The name must not contain spaces.
func (w *World) AddPod(ctx context.Context, name string) (*Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	if w.closed {
		return nil, fmt.Errorf("add pod %s: %w", name, ErrClosed)
	}
	if _, err := w.find(name); err == nil {
		return nil, fmt.Errorf("add pod %s: it is there", name)
	}
	ns, err := newMachine(name)
	if err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, err)
	}
	w.made++
	p := &Pod{
		Namespace: ns,
		IP4:       w.next[0],
		IP6:       w.next[1],
		Link:      PodLinkPrefix + strconv.Itoa(w.made),
	}
	w.next = [2]netip.Addr{p.IP4.Next(), p.IP6.Next()}
	if err := w.joinPod(p); err != nil {
		return nil, fmt.Errorf("add pod %s: %w", name, errors.Join(err, p.Close()))
	}
	w.pods = append(w.pods, p)
	return p, nil
}

// joinPod connects a pod with the node and starts its servers. Like most CNI
// plugins it gives the pod an address without a network, and a gateway that
// only "onlink" makes reachable.
func (w *World) joinPod(p *Pod) error {
	if err := Connect(w.Node, p.Link, p.Namespace, "eth0"); err != nil {
		return err
	}
	for i, f := range families() {
		ip := [...]netip.Addr{p.IP4, p.IP6}[i]
		host := netip.PrefixFrom(ip, ip.BitLen())
		if err := p.AddAddr("eth0", host); err != nil {
			return err
		}
		if err := introduce(w.Node, p.Link, f.node, p.Namespace, "eth0", ip); err != nil {
			return err
		}
		everything := netip.PrefixFrom(f.node, 0).Masked()
		if err := p.AddRoute(Route{Dst: everything, Link: "eth0", Via: f.node, OnLink: true}); err != nil {
			return err
		}
		if err := w.Node.AddRoute(Route{Dst: host, Link: p.Link, Source: f.node}); err != nil {
			return err
		}
	}
	for _, port := range w.ports {
		if _, err := p.Serve(port); err != nil {
			return err
		}
	}
	return nil
}

// RemovePod ends a pod at once: its connections break, its addresses become
// unreachable.
func (w *World) RemovePod(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	i, err := w.find(name)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	p := w.pods[i]
	w.pods = slices.Delete(w.pods, i, i+1)
	// First the link, or the servers would say goodbye to those connected.
	// The kernel removes it with the namespace, but only some time after.
	err = errors.Join(w.Node.RemoveLink(p.Link), p.Close())
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", name, err)
	}
	return nil
}

// find returns the index of the pod of that name. The caller holds the lock.
func (w *World) find(name string) (int, error) {
	i := slices.IndexFunc(w.pods, func(p *Pod) bool { return p.Name() == name })
	if i < 0 {
		return 0, fmt.Errorf("there is no pod %s", name)
	}
	return i, nil
}
