package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestServiceEndpoints(t *testing.T) {
	config := modeltest.Config()
	config.DropInvalid = true
	service := web().UDP("dns", 53)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 8080).Local("10.0.0.2").Ready("10.0.0.3")
	other := modeltest.NewService("ns1/other").On("172.30.0.42").TCP("", 80)
	otherSlice := modeltest.NewSlice("ns1/other-1", "other").TCP("", 8080).Ready("10.0.0.3", "10.0.0.4")
	b := modeltest.Builder(config, service, other, slice, otherSlice)
	both := []string{"10.0.0.2:8080/tcp", "10.0.0.2:8080/udp", "10.0.0.3:8080/tcp", "10.0.0.3:8080/udp", "10.0.0.4:8080/tcp"}
	before := b.Snapshot()
	for _, step := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"all of both Services, each once", func() {}, both},
		{"both go", func() { otherSlice.Delete(b); slice.Delete(b) }, []string{}},
		{"a Service without its slices' ports", func() { web().Set(b); slice.Set(b) }, []string{"10.0.0.2:8080/tcp", "10.0.0.3:8080/tcp"}},
		{"only those that are used", func() { web().Policies("Local", "").Set(b) }, []string{"10.0.0.2:8080/tcp"}},
		{"the Service goes", func() { service.Delete(b) }, []string{}},
	} {
		step.change()
		s := b.Snapshot().Family(model.IPv4)
		equal(t, step.name, step.want, addrs(s.ServiceEndpoints))
		equal(t, step.name+": IPv6", []string{}, addrs(b.Snapshot().Family(model.IPv6).ServiceEndpoints))
		equal(t, step.name+": the setting", true, s.DropInvalid)
	}
	equal(t, "the first snapshot, afterwards", both, addrs(before.Family(model.IPv4).ServiceEndpoints))

	t.Run("IPv6", func(t *testing.T) {
		s := modeltest.Snapshot(config, web().On("fd00:172:30::29"),
			modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).Ready("fd00:10::2"))
		equal(t, "endpoints", []string{"[fd00:10::2]:8080/tcp"}, addrs(s.Family(model.IPv6).ServiceEndpoints))
	})
	t.Run("nobody keeps them where they are not asked for", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), service, slice).Family(model.IPv4)
		equal(t, "endpoints", []string{}, addrs(s.ServiceEndpoints))
		equal(t, "the setting", false, s.DropInvalid)
	})
}
