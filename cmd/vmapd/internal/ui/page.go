// Package ui has the page of "vmapd ui": what the daemon has programmed, for a browser.
//
//	browser ── GET /SECRET/        ── the folder page, in this program
//	        └─ GET /SECRET/api/…   ── JSON: the daemon's answer at its socket
//
// It is served on loopback, where every user of the machine may connect: so its path has a random word, which
// only the terminal has. A page of another site does not know it either.
//
// Its Content-Security-Policy allows the style, the script and requests of the same origin, and nothing else. Texts of
// objects are never markup: the script makes nodes of text alone.
package ui

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

//go:embed page
var files embed.FS

const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// headerTimeout ends connections that ask for nothing. A daemon on a busy node has answerTime: the page says meanwhile
// how old it is.
const headerTimeout, answerTime = 5 * time.Second, 30 * time.Second

// Serve serves the page on a port of loopback, or with 0 on a free one, until ctx ends, and prints its address.
func Serve(ctx context.Context, stdout io.Writer, daemon socket.Client, port uint16) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	secret := rand.Text()
	fmt.Fprintf(stdout, "http://%s/%s/\nCtrl-C ends the page.\n", l.Addr(), secret)
	server := &http.Server{Handler: Handler(secret, daemon), ReadHeaderTimeout: headerTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the handler of the page below a path, and of its requests.
func Handler(secret string, daemon socket.Client) http.Handler {
	daemon.Deadline = answerTime
	mux := http.NewServeMux()
	page, _ := fs.Sub(files, "page") // a valid name
	mux.Handle("GET /"+secret+"/", http.StripPrefix("/"+secret, http.FileServerFS(page)))
	for _, name := range []string{"status", "services", "service"} {
		mux.HandleFunc("GET /"+secret+"/api/"+name, func(w http.ResponseWriter, r *http.Request) {
			answer(w, r, daemon, "/v1/"+name)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": policy,
		} {
			w.Header().Set(name, value)
		}
		mux.ServeHTTP(w, r)
	})
}

// answer passes a request on to the daemon.
func answer(w http.ResponseWriter, r *http.Request, daemon socket.Client, path string) {
	var value json.RawMessage
	err := daemon.Get(r.Context(), path, r.URL.Query(), &value)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := http.StatusBadGateway
		if refused, ok := errors.AsType[*socket.Error](err); ok {
			status = refused.Status
		}
		w.WriteHeader(status)
		value, _ = json.Marshal(map[string]string{"error": err.Error()}) // a text has JSON
	}
	_, _ = w.Write(value) // an error means that the client left
}
