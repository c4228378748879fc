package config

import (
	"io"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// JSONLog is the value of Config.LogFormat for JSON. All others mean text.
const JSONLog = logsapi.JSONLogFormat

// LogFormat returns the value of --logging-format in arguments that may be invalid, for an error about them.
func LogFormat(args []string) string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	format := fs.String("logging-format", logsapi.DefaultLogFormat, "")
	_ = fs.Parse(args) // as far as it can be parsed
	return *format
}
