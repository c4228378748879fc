package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestWhichServicesCount(t *testing.T) {
	rejecting := "ns1/web:http/tcp [172.30.0.41:80 reject]"
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		want    []string
	}{
		{"a cluster IP makes a Service count", web(), []string{webLine}},
		{"no cluster IP: not ours", web().On(), nil},
		{"an empty cluster IP is none", web().On(""), nil},
		{"None is the cluster IP of a headless Service", web().On("None"), nil},
		{"what stands behind None does not matter", web().On("None", "172.30.0.41"), nil},
		{"ExternalName is a DNS entry, whatever cluster IP it has kept", web().Typed("ExternalName"), nil},
		{"another proxy's Service is left to it", web().Labeled(model.LabelServiceProxyName, "other"), nil},
		{"the label counts, not its value", web().Labeled(model.LabelServiceProxyName, ""), nil},
		{"the headless label does not count for a Service", web().Labeled(model.LabelHeadless, ""), []string{webLine}},
		{"other labels do not matter", web().Labeled("app", "web"), []string{webLine}},
		{"a type of the future is served like others", web().Typed("Teapot"), []string{webLine}},
		{"a Service in another namespace has other endpoints", func() modeltest.Service {
			s := web()
			s.Namespace = "ns2"
			return s
		}(), []string{"ns2/web:http/tcp [172.30.0.41:80 reject]"}},
		{"a name that no slice has", func() modeltest.Service {
			s := web()
			s.Name = "web-2"
			return s
		}(), []string{"ns1/web-2:http/tcp [172.30.0.41:80 reject]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, webSlice())
			checkPorts(t, s, tt.want...)
			checkProblems(t, s)
		})
	}

	t.Run("a label that comes and goes takes the Service along", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), web(), webSlice())
		checkPorts(t, b.Snapshot(), webLine)
		web().Labeled(model.LabelServiceProxyName, "other").Set(b)
		checkPorts(t, b.Snapshot())
		equal(t, "cluster IPs", []string{}, addrs(b.Snapshot().Family(model.IPv4).ClusterIPs()))
		web().Set(b)
		checkPorts(t, b.Snapshot(), webLine)
	})

	t.Run("a Service that is taken over from another proxy has its slices at once", func(t *testing.T) {
		theirs := webSlice().Labeled(model.LabelServiceProxyName, "other")
		b := modeltest.Builder(modeltest.Config(), theirs, web().Labeled(model.LabelServiceProxyName, "other"))
		checkPorts(t, b.Snapshot())
		web().Set(b)
		checkPorts(t, b.Snapshot(), webLine)
	})

	t.Run("a Service that comes after its slices has endpoints at once", func(t *testing.T) {
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), webSlice(), web()), webLine)
	})

	t.Run("a Service without slices refuses connections", func(t *testing.T) {
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), web()), rejecting)
	})

	t.Run("a Service without ports still has its cluster IP", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), modeltest.NewService("ns1/web").On("172.30.0.41"))
		checkPorts(t, s)
		equal(t, "cluster IPs", []string{"172.30.0.41"}, addrs(s.Family(model.IPv4).ClusterIPs()))
	})
}

func TestWhichSlicesCount(t *testing.T) {
	rejecting := "ns1/web:http/tcp [172.30.0.41:80 reject]"
	for _, tt := range []struct {
		name  string
		slice modeltest.Slice
		want  string
	}{
		{"the label names the Service", webSlice(), webLine},
		{"who made the slice does not matter", webSlice().Labeled("endpointslice.kubernetes.io/managed-by", "me"), webLine},
		{"the label of another proxy counts for the Service alone", webSlice().Labeled(model.LabelServiceProxyName, "other"), webLine},
		{"slices of headless Services", webSlice().Labeled(model.LabelHeadless, ""), rejecting},
		{"slices of names", webSlice().Typed("FQDN"), rejecting},
		{"the namespace is the slice's", func() modeltest.Slice {
			s := webSlice()
			s.Namespace = "ns2"
			return s
		}(), rejecting},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), web(), tt.slice)
			checkPorts(t, s, tt.want)
			checkProblems(t, s)
		})
	}

	t.Run("a slice can move to another Service", func(t *testing.T) {
		other := modeltest.NewService("ns1/other").On("172.30.0.42").TCP("http", 80)
		b := modeltest.Builder(modeltest.Config(), web(), other, webSlice())
		b.Snapshot()
		webSlice().Labeled(model.LabelServiceName, "other").Set(b)
		checkPorts(t, b.Snapshot(),
			"ns1/other:http/tcp [172.30.0.42:80 forward] 10.0.0.2:8080, 10.0.0.3:8080", rejecting)
	})
}

func TestOnlyOurNodeCounts(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), modeltest.NewNode("node-2", "192.168.0.3"))
	want := []string{"192.168.0.2"}
	got := func() []string {
		list := []string{}
		for _, a := range b.Snapshot().Family(model.IPv4).NodePortAddrs {
			list = append(list, a.String())
		}
		return list
	}
	equal(t, "node port addresses", want, got())
	b.DeleteNode("node-2")
	equal(t, "node port addresses after another node left", want, got())
	b.DeleteNode("node-1")
	equal(t, "node port addresses after our node left", want, got())
}
