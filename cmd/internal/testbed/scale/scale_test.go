package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/sync/kube"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func TestMeasure(t *testing.T) {
	nettest.Need(t)
	var log bytes.Buffer
	o, err := parseOptions([]string{
		"-vmapd", labtest.Vmapd(t), "-shapes", "60x1", "-churn", "1s", "-probes", "20",
	}, &log)
	if err != nil {
		t.Fatal(err)
	}
	r, err := measure(t.Context(), o, o.shapes[0], &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	var table bytes.Buffer
	writeTable(&table, []record{r})
	t.Logf("%s", &table)
	if r.wrong != nil || r.Ready == 0 || r.Restart == 0 || r.Peak == 0 || r.One == 0 || r.ChurnP99 < r.Churn {
		t.Errorf("got %+v: %v", r, r.wrong)
	}
}

// A proxy must find nothing wrong, or a measurement would leave out what is.
func TestObjectsAreValid(t *testing.T) {
	o := newObjects(shape{services: 20, endpoints: 150})
	b := model.NewBuilder(model.Config{NodeName: nodeName, NodePortAddresses: model.NodePortAddresses{Primary: true}})
	for i := range 500 {
		slice, _ := o.replace(i%2 == 0, time.Unix(int64(i), 0))
		b.SetEndpointSlice(kube.EndpointSlice(slice))
	}
	b.SetNode(kube.Node(node()))
	b.SetServiceCIDR(kube.ServiceCIDR(serviceCIDR()))
	for i, slices := range o.slices {
		b.SetService(kube.Service(service(i)))
		for _, s := range slices {
			b.SetEndpointSlice(kube.EndpointSlice(s))
		}
	}
	for _, p := range b.Snapshot().Problems {
		t.Error(p)
	}
}
