package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reloadInterval is how long a certificate is used without a look at its files.
const reloadInterval = time.Second

// Certificate is a certificate with its key, in files that may be replaced at any time, in
// place or by a change of symbolic links as in mounted Secrets. They are looked at when
// somebody connects, at most once a second.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex
	looked    time.Time
	cert, key []byte // what pair was made of
	pair      *tls.Certificate
	said      string // what is wrong with what is there now
}

// LoadCertificate reads a certificate, with those that it was signed with if there are
// any, and its key: both PEM.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.looked = time.Now()
	return c, nil
}

// Config returns what a server needs: the current certificate, and TLS 1.2 or newer.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current(h.Context()), nil
		},
	}
}

// current returns the pair in the files, or the one before if they can't be used now: they
// may be about to be replaced.
func (c *Certificate) current(ctx context.Context) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < reloadInterval {
		return c.pair
	}
	c.looked = time.Now()
	before := c.pair
	if err := c.load(); err != nil {
		if err.Error() != c.said {
			c.said = err.Error()
			c.log.LogAttrs(ctx, slog.LevelError, "the new certificate can't be used; the one before stays", slog.Any("err", err))
		}
		return c.pair
	}
	c.said = ""
	if c.pair != before {
		c.log.LogAttrs(ctx, slog.LevelInfo, "the certificate was replaced",
			slog.String("file", c.certFile), slog.Time("valid_until", c.pair.Leaf.NotAfter))
	}
	return c.pair
}

// load replaces the pair if the files have another one.
func (c *Certificate) load() error {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("read the certificate's key: %w", err)
	}
	if c.pair != nil && bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("use the certificate %s with the key %s: %w", c.certFile, c.keyFile, err)
	}
	c.cert, c.key, c.pair = cert, key, &pair
	return nil
}
