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

	"github.com/vmapd/vmapd/sync/logonce"
)

// reloadInterval is the minimum time between two reads of the files.
const reloadInterval = time.Second

// Certificate is a certificate with its key, in files that may be replaced at any time, in
// place or by symbolic links as in mounted Secrets. A new connection reads them, at most once a
// second.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex
	looked    time.Time
	cert, key []byte // the files from which pair was made
	pair      *tls.Certificate
	said      logonce.Error // about the present files
}

// LoadCertificate reads a certificate, with intermediate ones if there are any, and its key,
// both in PEM.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if err := c.load(); err != nil {
		return nil, err
	}
	c.looked = time.Now()
	return c, nil
}

// Config returns a server's configuration: the current certificate, and TLS 1.2 or newer.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current(h.Context()), nil
		},
	}
}

// current returns the pair in the files or, if they are invalid, the previous one: they may be
// about to be replaced.
func (c *Certificate) current(ctx context.Context) *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < reloadInterval {
		return c.pair
	}
	c.looked = time.Now()
	before := c.pair
	err := c.load()
	if c.said.Differs(err) && err != nil {
		c.log.LogAttrs(ctx, slog.LevelError, "cannot use the new certificate; keeping the previous one", slog.Any("err", err))
	}
	if c.pair != before {
		c.log.LogAttrs(ctx, slog.LevelInfo, "the certificate was replaced",
			slog.String("file", c.certFile), slog.Time("valid_until", c.pair.Leaf.NotAfter))
	}
	return c.pair
}

// load replaces the pair if the files have changed.
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
