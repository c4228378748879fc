package informer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// lookAgain is the age at which credentials are read again although the server accepts
// them. The kubelet renews a projected token at least two minutes before it expires.
const lookAgain = time.Minute

// credentials is a transport that follows the kubeconfig and the files it names.
//
// client-go alone reads a token again after 50 s, and a client certificate and the CA after
// five minutes, all three only from files of their own, even while the server refuses the
// old ones. This transport reads everything again as soon as the server refuses, and repeats
// the request with the new credentials.
type credentials struct {
	load func() (*rest.Config, error) // has the contents of files in place of their names

	mu        sync.Mutex
	conf      *rest.Config // of transport
	transport http.RoundTripper
	looked    time.Time
}

// followCredentials returns a transport for the credentials that load returns now and later.
func followCredentials(load func() (*rest.Config, error)) (*credentials, error) {
	c := &credentials{load: load}
	if _, err := c.again(); err != nil {
		return nil, err
	}
	return c, nil
}

// RoundTrip implements [http.RoundTripper].
func (c *credentials) RoundTrip(r *http.Request) (*http.Response, error) {
	used := c.current()
	resp, err := used.RoundTrip(r)
	noteAttempt(r.Context(), resp, err)
	if !refused(resp, err) || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	fresh, loadErr := c.again()
	if loadErr != nil {
		if resp != nil {
			_ = resp.Body.Close()
			err = &statusError{resp.StatusCode, resp.Status}
		}
		return nil, fmt.Errorf("%w; credentials can't be read again: %w", err, loadErr)
	}
	if fresh == used {
		return resp, err
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	r = r.Clone(r.Context())
	if r.GetBody != nil {
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	resp, err = fresh.RoundTrip(r)
	noteAttempt(r.Context(), resp, err)
	return resp, err
}

// WrappedRoundTripper lets client-go close idle connections.
func (c *credentials) WrappedRoundTripper() http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transport
}

// refused says whether an answer may be due to old credentials, ours or the server's.
func refused(resp *http.Response, err error) bool {
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	return resp != nil && resp.StatusCode == http.StatusUnauthorized ||
		errors.As(err, &verification) || errors.As(err, &alert)
}

// current returns the transport to use. Files that can't be read do no harm while the server
// accepts the old credentials.
func (c *credentials) current() http.RoundTripper {
	c.mu.Lock()
	t, old := c.transport, time.Since(c.looked) > lookAgain
	c.mu.Unlock()
	if !old {
		return t
	}
	if fresh, err := c.again(); err == nil {
		return fresh
	}
	return t
}

// again reads everything, and returns the transport, a new one if anything changed.
func (c *credentials) again() (http.RoundTripper, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = time.Now()
	conf, err := c.load()
	if err != nil {
		return nil, err
	}
	if c.transport != nil && same(c.conf, conf) {
		return c.transport, nil
	}
	t, err := rest.TransportFor(conf)
	if err != nil {
		return nil, fmt.Errorf("use the credentials for %s: %w", conf.Host, err)
	}
	// Idle connections of the old transport end by a time-out. Its watches and pending
	// requests continue.
	c.conf, c.transport = conf, t
	return t, nil
}

// same compares the parts of a transport's configuration that come from files.
func same(a, b *rest.Config) bool {
	return a.BearerToken == b.BearerToken && a.Username == b.Username && a.Password == b.Password &&
		reflect.DeepEqual(a.TLSClientConfig, b.TLSClientConfig) &&
		reflect.DeepEqual(a.Impersonate, b.Impersonate) &&
		reflect.DeepEqual(a.ExecProvider, b.ExecProvider)
}

// inline puts the contents of the files that conf names in place of their names, so
// that client-go does not follow them too.
func inline(conf *rest.Config) error {
	if err := rest.LoadTLSFiles(conf); err != nil {
		return err
	}
	for _, f := range []struct {
		name *string
		data []byte
	}{{&conf.CAFile, conf.CAData}, {&conf.CertFile, conf.CertData}, {&conf.KeyFile, conf.KeyData}} {
		if *f.name != "" && len(f.data) == 0 {
			return fmt.Errorf("file %s is empty", *f.name)
		}
		*f.name = ""
	}
	if conf.BearerTokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(conf.BearerTokenFile)
	if err != nil {
		return err
	}
	if conf.BearerToken = strings.TrimSpace(string(token)); conf.BearerToken == "" {
		return fmt.Errorf("file %s is empty", conf.BearerTokenFile)
	}
	conf.BearerTokenFile = ""
	return nil
}
