package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestWhichServicesCount(t *testing.T) {
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
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, webSlice())
			checkPorts(t, s, tt.want...)
			checkProblems(t, s)
		})
	}

	t.Run("a Service that is taken over from another proxy has its slices at once", func(t *testing.T) {
		theirs := webSlice().Labeled(model.LabelServiceProxyName, "other")
		b := modeltest.Builder(modeltest.Config(), theirs, web().Labeled(model.LabelServiceProxyName, "other"))
		checkPorts(t, b.Snapshot())
		web().Set(b)
		checkPorts(t, b.Snapshot(), webLine)
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
