package httpserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
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
}

// Validate returns an error about the first invalid address: it is malformed or given twice.
func (c Config) Validate() error {
	if len(c.Addresses) > 0 && c.Handler == nil {
		return errors.New("there is nothing to serve")
	}
	for i, address := range c.Addresses {
		if err := checkAddress(address); err != nil {
			return err
		}
		if slices.Contains(c.Addresses[:i], address) {
			return fmt.Errorf("address %q is given twice", address)
		}
	}
	return nil
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		if bad, ok := errors.AsType[*net.AddrError](err); ok {
			return fmt.Errorf("address %q: %s; want HOST:PORT", address, bad.Err)
		}
		return fmt.Errorf("address %q: %w", address, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("address %q: the port must be a number from 0 to 65535", address)
	}
	return nil
}
