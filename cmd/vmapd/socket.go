package main

import (
	"context"
	"net/url"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

// answers has the parts of the daemon that requests at its socket are about. A request takes no lock that
// a round needs for longer than reading a pointer.
type answers struct {
	*daemon
	plane     *dataplane
	observers *observers
	in        inputs
	nodeName  string
}

// routes are all paths of the socket.
func (a *answers) routes() map[string]socket.Route {
	return map[string]socket.Route{
		"/v1/doctor": a.observers.doctor.serve,
		"/v1/status": a.status,
	}
}

// serve answers requests until ctx ends.
func (a *answers) serve(ctx context.Context) {
	s := socket.Server{Path: a.current.Load().Socket, Routes: a.routes(), Log: a.log}
	s.Run(ctx)
}

func (a *answers) status(context.Context, url.Values) (any, error) {
	return a.daemon.status(a.plane, a.observers, a.in, a.nodeName), nil
}
