package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestDuplicateEndpoints(t *testing.T) {
	one := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3")
	two := modeltest.NewSlice("ns1/web-2", "web").TCP("http", 8080).Local("10.0.0.2", "10.0.0.4")
	both := "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080 local, 10.0.0.3:8080, 10.0.0.4:8080 local"
	onlyOne := "ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080, 10.0.0.3:8080"

	t.Run("an endpoint in two slices counts once, and as local if any copy is", func(t *testing.T) {
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), web(), one, two), both)
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), two, one, web()), both)
	})
	t.Run("removing the local copy keeps the endpoint, as a remote one", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), web(), one, two)
		testaid.Equal(t, "hairpins", []string{"10.0.0.2", "10.0.0.4"}, addrs(b.Snapshot().Family(model.IPv4).Hairpins))
		two.Delete(b)
		checkPorts(t, b.Snapshot(), onlyOne)
		testaid.Equal(t, "hairpins", []string{}, addrs(b.Snapshot().Family(model.IPv4).Hairpins))
	})
	t.Run("copies that terminate do not apply beside one that does not", func(t *testing.T) {
		const without = "ns1/web:http/tcp [172.30.0.41:80 reject]"
		here, sticky := modeltest.OnNode(modeltest.NodeName), web().ConnectionGrace("30s")
		starting, draining := modeltest.Conditions(false, false, false), modeltest.Conditions(false, true, true)
		ended, published := modeltest.Conditions(false, false, true), modeltest.Conditions(true, true, true)
		for _, old := range []func(*model.SliceEndpoint){draining, ended, published} {
			checkPorts(t, modeltest.Snapshot(modeltest.Config(), web(), one, two.Endpoint("10.0.0.3", here, old)), both)
			checkPorts(t, modeltest.Snapshot(modeltest.Config(), web(), one.Endpoint("10.0.0.3", here, old), two), both)
			s := modeltest.Snapshot(modeltest.Config(), sticky, modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
				Endpoint("10.0.0.2", here, old).Endpoint("10.0.0.2", here, starting))
			checkPorts(t, s, without)
			for sp := range s.Family(model.IPv4).ServicePorts() {
				testaid.Equal(t, "draining", 0, len(sp.Draining))
			}
		}
	})
	t.Run("an endpoint without a node is remote, also where our node has no name", func(t *testing.T) {
		nowhere := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Endpoint("10.0.0.2").Endpoint("10.0.0.3")
		checkPorts(t, modeltest.Snapshot(model.Config{}, web(), nowhere), onlyOne)
	})
	t.Run("an endpoint without a node may connect to itself from here", func(t *testing.T) {
		nowhere := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Endpoint("10.0.0.2").Endpoint("10.0.0.3")
		b := modeltest.Builder(modeltest.Config(), web(), nowhere)
		testaid.Equal(t, "hairpins", []string{"10.0.0.2", "10.0.0.3"}, addrs(b.Snapshot().Family(model.IPv4).Hairpins))
		modeltest.NewSlice("ns1/web-2", "web").TCP("http", 8080).Ready("10.0.0.3").Set(b)
		testaid.Equal(t, "hairpins", []string{"10.0.0.2"}, addrs(b.Snapshot().Family(model.IPv4).Hairpins))
		one.Set(b)
		testaid.Equal(t, "hairpins", []string{}, addrs(b.Snapshot().Family(model.IPv4).Hairpins))
		checkPorts(t, b.Snapshot(), onlyOne)
	})
}
