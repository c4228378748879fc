package httpserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
)

// Config says where a [Server] serves what.
type Config struct {
	// Addresses are where to listen, each HOST:PORT; an unspecified address means both
	// families, as everywhere in Go. None: nothing is served.
	Addresses []string
	// Handler answers the requests.
	Handler http.Handler
	// TLS is what connections are secured with, see [Certificate.Config]. nil: plain HTTP.
	TLS *tls.Config
	// Authorizer says who may ask what. nil: everybody, everything.
	Authorizer *Authorizer
}

// Validate returns an error that names the address that can't be served so: one that is
// malformed or given twice, or one where tokens would have to be sent in the clear over a
// network.
func (c Config) Validate() error {
	if len(c.Addresses) > 0 && c.Handler == nil {
		return errors.New("there is nothing to serve")
	}
	for i, address := range c.Addresses {
		host, err := splitAddress(address)
		switch {
		case err != nil:
			return err
		case slices.Contains(c.Addresses[:i], address):
			return fmt.Errorf("address %q is given twice", address)
		case c.Authorizer != nil && c.TLS == nil && !isLoopback(host):
			return fmt.Errorf("address %q: authentication without TLS would let others on the network read the tokens; set a certificate and a key, or listen on a loopback address", address)
		}
	}
	return nil
}

func splitAddress(address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if bad, ok := errors.AsType[*net.AddrError](err); ok {
			return "", fmt.Errorf("address %q: %s; want HOST:PORT", address, bad.Err)
		}
		return "", fmt.Errorf("address %q: %w", address, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("address %q: the port must be a number from 0 to 65535", address)
	}
	return host, nil
}

// isLoopback says whether what is sent to a host stays on this machine: localhost is a
// name that never leads elsewhere (RFC 6761, 6.3).
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// handler is what a port answers with.
func (c Config) handler() http.Handler {
	if c.Authorizer == nil {
		return c.Handler
	}
	return c.Authorizer.Wrap(c.Handler)
}
