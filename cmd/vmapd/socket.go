package main

import (
	"context"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// answers has the parts of the daemon that requests at its socket are about. A request takes no lock that
// a round needs for longer than reading a pointer.
type answers struct {
	*daemon
	plane     *dataplane
	observers *observers
	in        inputs
	tracked   conntrack.Lister
}

// routes are the paths of the socket for commands; the page has its own.
func (a *answers) routes() map[string]socket.Route {
	return map[string]socket.Route{
		"/v1/status":      a.overview,
		"/v1/services":    a.services,
		"/v1/endpoints":   a.endpoints,
		"/v1/connections": a.connections,
		"/v1/explain":     a.explain,
		"/v1/doctor":      a.observers.doctor.serve,
	}
}

// serve answers requests until ctx ends.
func (a *answers) serve(ctx context.Context) {
	s := socket.Server{Path: a.config.Socket, Routes: a.routes(), Page: a.page(), Log: a.log}
	s.Run(ctx)
}
