package main

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// writeOutput writes a value in the format of --output: "text" (by a function), "json" or "yaml".
func writeOutput(w io.Writer, format string, value any, text func(io.Writer) error) error {
	switch format {
	case "text":
		return text(w)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // "=>" stays readable
		return enc.Encode(value)
	case "yaml":
		out, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(out)
		}
		return err
	}
	return fmt.Errorf("--output: %q is none of text, json and yaml", format)
}
