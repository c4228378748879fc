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

// Config of a [Server].
type Config struct {
	// Addresses to listen on, each HOST:PORT; an unspecified address means both families, as
	// everywhere in Go. A Server ignores empty ones; without any, it serves nothing.
	Addresses []string
	// Handler answers the requests.
	Handler http.Handler
	// TLS secures connections, see [Certificate.Config]. nil: plain HTTP.
	TLS *tls.Config
	// Authorizer restricts requests. nil: all are allowed.
	Authorizer *Authorizer
}

// Validate returns an error about the first invalid address: it is malformed or given twice, or
// clients would have to send tokens to it over a network in plain text.
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
			return fmt.Errorf("address %q: without TLS, others on the network could read the tokens; set a certificate and a key, or listen on a loopback address", address)
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

// isLoopback reports whether a host is this machine. The name localhost always is (RFC 6761,
// 6.3).
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
