package httpserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// secretVolume is a folder as the kubelet mounts Secrets: files are links into a folder
// that a link names, and that link is replaced.
type secretVolume struct{ dir string }

func newSecretVolume(t *testing.T, cert, key []byte) secretVolume {
	t.Helper()
	v := secretVolume{t.TempDir()}
	v.replace(t, cert, key)
	for _, file := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", file), filepath.Join(v.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func (v secretVolume) cert() string { return filepath.Join(v.dir, "tls.crt") }
func (v secretVolume) key() string  { return filepath.Join(v.dir, "tls.key") }

func (v secretVolume) replace(t *testing.T, cert, key []byte) {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(v.dir, "..next")
	if err := os.Symlink(dir, next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(v.dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func clientFor(t *testing.T, certs ...[]byte) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	for _, c := range certs {
		if !pool.AppendCertsFromPEM(c) {
			t.Fatal("not a certificate")
		}
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// testCertificate returns a certificate, and a client that trusts it.
func testCertificate(t *testing.T) (*Certificate, *http.Client) {
	t.Helper()
	cert, key := newPair(t, 1)
	v := newSecretVolume(t, cert, key)
	c, err := LoadCertificate(v.cert(), v.key(), discard())
	if err != nil {
		t.Fatal(err)
	}
	return c, clientFor(t, cert)
}

// A client that goes on connecting must not notice that the certificate is replaced.
func TestCertificateIsReplacedUnderTraffic(t *testing.T) {
	t.Parallel()
	cert1, key1 := newPair(t, 1)
	cert2, key2 := newPair(t, 2)
	v := newSecretVolume(t, cert1, key1)
	log, said := newLog()
	certificate, err := LoadCertificate(v.cert(), v.key(), log)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: says("hello"), TLS: certificate.Config()}, Options{})
	url := "https://" + serving(t, s, 1)
	client := clientFor(t, cert1, cert2)

	serial := func() int64 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK || response.ProtoMajor != 1 {
			t.Errorf("got %s %s", response.Proto, response.Status)
		}
		return response.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Fatalf("first: serial number %d", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		for ctx.Err() == nil {
			serial()
		}
	})
	v.replace(t, cert2, key2)
	eventually(t, "the new certificate is used", func() bool { return serial() == 2 })
	stop()
	wait.Wait()
	if said.count("the certificate was replaced") != 1 {
		t.Errorf("want one line about it, got:\n%s", said)
	}
}

func TestABrokenCertificateKeepsTheOneBeforeAndIsSaidOnce(t *testing.T) {
	cert1, key1 := newPair(t, 1)
	cert2, key2 := newPair(t, 2)
	v := newSecretVolume(t, cert1, key1)
	synctest.Test(t, func(t *testing.T) {
		log, said := newLog()
		c, err := LoadCertificate(v.cert(), v.key(), log)
		if err != nil {
			t.Fatal(err)
		}
		// look looks at the files three times, and returns the serial number.
		look := func() *big.Int {
			for range 3 {
				time.Sleep(reloadInterval)
				c.current(t.Context())
			}
			return c.current(t.Context()).Leaf.SerialNumber
		}
		for _, tt := range []struct {
			name      string
			cert, key []byte
			serial    int64
			complains int // so far
			text      string
		}{
			{"the same", cert1, key1, 1, 0, ""},
			{"a certificate with another's key", cert2, key1, 1, 1, "private key does not match public key"},
			{"no certificate", []byte("nothing"), key2, 1, 2, "failed to find any PEM data"},
			{"mended", cert2, key2, 2, 2, "the certificate was replaced"},
			{"no certificate again", []byte("nothing"), key2, 2, 3, "tls.crt"},
		} {
			v.replace(t, tt.cert, tt.key)
			if got := look().Int64(); got != tt.serial {
				t.Errorf("%s: want serial number %d, got %d", tt.name, tt.serial, got)
			}
			if got := said.count("cannot use the new certificate"); got != tt.complains || !strings.Contains(said.String(), tt.text) {
				t.Errorf("%s: want %d complaints and %q, got:\n%s", tt.name, tt.complains, tt.text, said)
			}
		}
		if err := os.Remove(v.key()); err != nil {
			t.Fatal(err)
		}
		if got := look().Int64(); got != 2 || said.count("read the certificate's key") != 1 {
			t.Errorf("without the key: got serial number %d:\n%s", got, said)
		}
	})
}

func TestLoadCertificateErrors(t *testing.T) {
	t.Parallel()
	cert, _ := newPair(t, 1)
	_, otherKey := newPair(t, 2)
	v := newSecretVolume(t, cert, otherKey)
	for _, tt := range []struct{ cert, key, want string }{
		{"/none", v.key(), "read the certificate: open /none: no such file"},
		{v.cert(), "/none", "read the certificate's key: open /none: no such file"},
		{v.cert(), v.key(), "use the certificate " + v.cert() + " with the key " + v.key() + ": "},
	} {
		if _, err := LoadCertificate(tt.cert, tt.key, discard()); !strings.HasPrefix(message(err), tt.want) {
			t.Errorf("want %q, got %v", tt.want, err)
		}
	}
}

func TestOldTLSAndPlainHTTPAreRefused(t *testing.T) {
	t.Parallel()
	certificate, client := testCertificate(t)
	s, _ := start(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: says("hello"), TLS: certificate.Config()}, Options{})
	address := serving(t, s, 1)
	if status, body, err := get(t, http.DefaultClient, "http://"+address); err != nil || status != http.StatusBadRequest {
		t.Errorf("plain HTTP: got %d %q, %v", status, body, err)
	}
	for version, works := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		client.Transport.(*http.Transport).TLSClientConfig.MaxVersion = version
		_, body, err := get(t, client, "https://"+address)
		if (err == nil && body == "hello") != works {
			t.Errorf("%s: got %q, %v", tls.VersionName(version), body, err)
		}
	}
}
