package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// sticky is a Service with session affinity, in both families. Pods 2 and 3 are on this
// node, pod 4 is not.
type sticky struct {
	builder *model.Builder
	service modeltest.Service
	moved   map[int]string // pods of other nodes
}

func newSticky(timeout time.Duration) *sticky {
	s := &sticky{
		builder: modeltest.Builder(modeltest.Config(), modeltest.OurNode()),
		service: modeltest.NewService("default/web").On("172.30.0.41", "fd00:172:30::41").Policies("", "Local").TCP("http", 80).NodePort(30080),
		moved:   map[int]string{4: "node-2"},
	}
	s.lasts(timeout)
	s.pods(2, 3, 4)
	return s
}

// lasts sets the timeout; 0 switches affinity off.
func (s *sticky) lasts(timeout time.Duration) {
	service := s.service
	if timeout > 0 {
		service = service.Sticky(int32(timeout.Seconds()))
	}
	service.Set(s.builder)
}

// pods sets which endpoints there are.
func (s *sticky) pods(numbers ...int) {
	for _, f := range model.Families {
		slice := modeltest.NewSlice("default/web-"+f.String(), "web").TCP("http", 8080)
		if f == model.IPv6 {
			slice = slice.IPv6()
		}
		for _, n := range numbers {
			slice = slice.Endpoint(podOf(f, n).Addr().String(), modeltest.OnNode(cmp.Or(s.moved[n], modeltest.NodeName)))
		}
		slice.Set(s.builder)
	}
}

func podOf(f model.Family, n int) netip.AddrPort {
	a := fmt.Sprintf("10.0.0.%d", n)
	if f == model.IPv6 {
		a = fmt.Sprintf("fd00:10::%d", n)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(a), 8080)
}

func clientOf(f model.Family, n int) netip.Addr {
	if f == model.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:203::%x", n))
	}
	return netip.AddrFrom4([4]byte{203, byte(n >> 16), byte(n >> 8), byte(n)})
}

// noted is a remembered client.
type noted struct {
	client, pod int
	lasts, left time.Duration
}

// note puts clients into a map, as packets would have done some time ago.
func note(t testing.TB, b *Backend, f model.Family, name string, list ...noted) {
	t.Helper()
	all := make([]client, 0, len(list))
	for _, n := range list {
		pod := podOf(f, n.pod)
		all = append(all, client{
			nft.Element{
				Key:  string(nft.AppendAddr(nil, clientOf(f, n.client))),
				Data: string(nft.AppendPort(nft.AppendAddr(nil, pod.Addr()), pod.Port())),
			}, n.lasts, n.left,
		})
	}
	set := nft.DeclarationOf(name)
	for some := range slices.Chunk(all, elementsPerMessage) {
		m := b.conn.newBatch(f, nft.TableName)
		for _, c := range some {
			m.client(unix.NFT_MSG_NEWSETELEM, &set, c)
		}
		if err := b.conn.commit(&m); err != nil {
			t.Fatal(err)
		}
	}
}

// listed is what nft says of a client.
type listed struct {
	pod         string
	lasts, left time.Duration
}

// clients returns who is in a map, as the nft command reads it.
func (n netns) clients(t testing.TB, f model.Family, name string) map[netip.Addr]listed {
	t.Helper()
	all := map[netip.Addr]listed{}
	for _, m := range listedClient.FindAllStringSubmatch(n.nft(t, "", "list", "map", tableWord(f), nft.TableName, name), -1) {
		lasts, err := time.ParseDuration(m[2])
		left, err2 := time.ParseDuration(m[3])
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		all[netip.MustParseAddr(m[1])] = listed{m[4] + "." + m[5], lasts, left}
	}
	return all
}
