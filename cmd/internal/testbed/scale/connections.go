package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// Servers listen on two addresses of the node. Connections to them directly have another port than those through a
// Service: from the same port of the client, NAT would look for another one.
const directPort, servicePort, serverBits = 8080, 8081, 24

var (
	servers = []netip.Addr{netip.MustParseAddr("10.127.0.1"), netip.MustParseAddr("10.127.0.2")}
	//nolint:gochecknoglobals // a constant
	serversVIP = netip.MustParseAddrPort("10.127.0.10:80")
)

// connectTimeout is longer than the second after which the kernel sends a SYN again.
const connectTimeout = 3 * time.Second

var errLost = errors.New("refused or not answered")

// serve starts the servers.
func (w *world) serve() error {
	for _, a := range servers {
		if err := w.ns.AddAddr("lo", netip.PrefixFrom(a, serverBits)); err != nil { // the route for the VIP, too
			return err
		}
	}
	return w.ns.Do(func() error {
		for _, port := range []uint16{directPort, servicePort} {
			l, err := net.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port).String())
			if err != nil {
				return err
			}
			w.listeners = append(w.listeners, l)
			go accept(l)
		}
		return nil
	})
}

// serversService is the Service of the servers.
func serversService() (*corev1.Service, *discoveryv1.EndpointSlice) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "servers-1", Labels: map[string]string{discoveryv1.LabelServiceName: "servers"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(servicePort)),
		}},
	}
	for _, a := range servers {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, NodeName: new(cluster.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	vip := serversVIP.Addr().String()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "servers"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: int32(serversVIP.Port())},
			},
		},
	}, slice
}

func accept(l net.Listener) {
	for {
		switch c, err := l.Accept(); {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			_ = c.Close()
		}
	}
}

// connections compares new connections a second to the servers directly, and through their Service, in turns: what
// else happens on the machine concerns both. The figures are medians.
func (w *world) connections(ctx context.Context, rounds int, proxy string, log io.Writer) error {
	if err := w.serve(); err != nil {
		return err
	}
	service, slice := serversService()
	w.server.Set(service)
	w.server.Set(slice)
	defer w.server.Delete(slice)
	defer w.server.Delete(service)
	const turn, patience = 150 * time.Millisecond, time.Minute
	for end := time.Now().Add(patience); ; {
		if _, lost, err := w.connect(ctx, turn, serversVIP); err != nil || lost > 0 && time.Now().After(end) {
			return errors.Join(err, errLost)
		} else if lost == 0 {
			break
		}
	}
	var rates [2][]float64
	var allLost int
	to := [2][]netip.AddrPort{
		{netip.AddrPortFrom(servers[0], directPort), netip.AddrPortFrom(servers[1], directPort)}, {serversVIP},
	}
	for round := range rounds {
		for i := range to {
			which, start := (i+round)%len(to), time.Now()
			n, lost, err := w.connect(ctx, turn, to[which]...)
			if err != nil {
				return err
			}
			rates[which] = append(rates[which], float64(n)/time.Since(start).Seconds())
			allLost += lost
		}
	}
	var median [2]float64
	for i := range rates {
		slices.Sort(rates[i])
		median[i] = rates[i][len(rates[i])/2]
	}
	fmt.Fprintf(log, "%s: new connections a second: %.0f directly, %.0f through a Service (%.2f), %d lost\n",
		proxy, median[0], median[1], median[1]/median[0], allLost)
	return nil
}

// connect has clients on the node connect for some time, and returns the number of connections, and of those that were
// lost: refused, or not answered in time.
func (w *world) connect(ctx context.Context, turn time.Duration, to ...netip.AddrPort) (sum, lost int, err error) {
	const clients = 4
	end := time.Now().Add(turn)
	var made, unanswered [clients]int
	var errs [clients]error
	var wait sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			errs[i] = w.ns.Do(func() error {
				for n := 0; ctx.Err() == nil && time.Now().Before(end); n++ {
					switch err := connectOnce(to[n%len(to)]); {
					case errors.Is(err, errLost):
						unanswered[i]++
					case err != nil:
						return err
					default:
						made[i]++
					}
				}
				return ctx.Err()
			})
		})
	}
	wait.Wait()
	for i := range clients {
		sum += made[i]
		lost += unanswered[i]
	}
	return sum, lost, errors.Join(errs[:]...)
}

// connectOnce makes a connection and resets it, so that its port is free at once.
func connectOnce(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	timeout := unix.NsecToTimeval(connectTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil { // for connect
		return err
	}
	// With a timeout, the kernel does not restart it behind the signals of Go's scheduler (signal(7)).
	for {
		err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EINPROGRESS): // socket(7), SO_SNDTIMEO
			return errLost
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("connect to %v: %w", to, err)
		}
	}
}
