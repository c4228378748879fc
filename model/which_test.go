package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Further ones are the scenarios not-ours and slices-of-anybody.
func TestWhichServicesCount(t *testing.T) {
	foreign := webSlice()
	foreign.Namespace = "ns2"
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		slice   modeltest.Slice
		want    []string
	}{
		{"an empty cluster IP is none", web().On(""), webSlice(), nil},
		{"what stands behind None does not matter", web().On("None", "172.30.0.41"), webSlice(), nil},
		{"the label counts, not its value", web().Labeled(model.LabelServiceProxyName, ""), webSlice(), nil},
		{"a type of the future is served like others", web().Typed("Teapot"), webSlice(), []string{webLine}},
		{"the namespace is the slice's", web(), foreign, []string{"ns1/web:http/tcp [172.30.0.41:80 reject]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, tt.slice)
			checkPorts(t, s, tt.want...)
			checkProblems(t, s)
		})
	}
}
