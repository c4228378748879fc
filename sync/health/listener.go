package health

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/connlimit"
)

// limits bound the resources that clients can use. Tests have lower ones.
type limits struct {
	request time.Duration // for a whole request, and for its answer
	idle    time.Duration // between requests of one connection
	conns   int           // of one listener at a time
}

func defaultLimits() limits {
	return limits{request: 5 * time.Second, idle: time.Minute, conns: 128}
}

// maxHeader is in bytes; net/http adds 4096.
const maxHeader = 4 << 10

// listener serves HTTP at one address.
type listener struct {
	socket net.Listener
	server *http.Server
}

// serve answers connections to socket until close.
func serve(socket net.Listener, h http.Handler, limits limits) *listener {
	l := &listener{socket: socket, server: &http.Server{
		Handler:     h,
		ReadTimeout: limits.request, WriteTimeout: limits.request, IdleTimeout: limits.idle,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,                       // h answers "OPTIONS *", too
		ErrorLog:                     log.New(io.Discard, "", 0), // of malformed requests
	}}
	go func() { _ = connlimit.Serve(l.server, connlimit.New(socket, limits.conns)) }() // it ends with close only
	return l
}

// close frees the address, and ends the connections. One that is accepted at this moment may get one more answer.
func (l *listener) close() {
	_ = l.socket.Close() // Serve may not know of it yet
	_ = l.server.Close()
}

// listenTCP opens a socket of the address's family alone. The unspecified address stands for
// all of them. Go sets SO_REUSEADDR: lingering connections of an earlier process do not block
// the port (socket(7)).
func listenTCP(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // one short request needs no second path
	network := map[model.Family]string{model.IPv4: "tcp4", model.IPv6: "tcp6"}[model.FamilyOf(at.Addr())]
	return config.Listen(ctx, network, at.String())
}
