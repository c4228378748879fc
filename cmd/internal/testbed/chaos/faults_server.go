package main

import (
	"context"
	"net/http"
	"time"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// The API server misbehaves. Nothing may be lost: vmapd goes on with the objects that it has.
func serverFaults() []fault {
	var all []fault
	for _, outage := range []struct {
		name, does string
		how        apitest.Outage
	}{
		{"API hangs", "no byte from the API server arrives for a while", apitest.Frozen},
		{"API answers 503", "the API server answers every request with 503 for a while", apitest.Unavailable},
		{"API is away", "the API server's port is closed for a while", apitest.Refusing},
	} {
		all = append(all, fault{name: outage.name, does: outage.does, do: func(_ context.Context, w *world) error {
			if err := w.API.Outage(outage.how); err != nil {
				return err
			}
			time.Sleep(w.o.lasts)
			return w.Node.Do(func() error { return w.API.Outage(apitest.Up) }) // it listens again
		}})
	}
	return append(all, fault{
		name: "API answers 403", quick: true,
		does: "vmapd has no right to read EndpointSlices and Services for a while",
		do: func(_ context.Context, w *world) error {
			forbidden := func(f apitest.Fault) {
				w.API.Fault(apitest.Services, f)
				w.API.Fault(apitest.EndpointSlices, f)
			}
			forbidden(http.StatusForbidden)
			w.API.DropWatches()
			time.Sleep(w.o.lasts)
			forbidden(apitest.NoFault)
			return nil
		},
	})
}
