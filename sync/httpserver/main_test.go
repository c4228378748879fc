package httpserver

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

func newLog() (*slog.Logger, *testlog.Log) {
	b := &testlog.Log{}
	return slog.New(slog.NewTextHandler(b, nil)), b
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}
