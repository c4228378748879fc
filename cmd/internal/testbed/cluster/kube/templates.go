package kube

import (
	"embed"
	"fmt"
	"os"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// fill returns a template with its values filled in.
func fill(name string, values any) (string, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name)
	if err != nil {
		return "", fmt.Errorf("read the template %s: %w", name, err)
	}
	var b strings.Builder
	if err := t.Execute(&b, values); err != nil {
		return "", fmt.Errorf("fill in the template %s: %w", name, err)
	}
	return b.String(), nil
}

// writeFilled writes a template, with its values filled in, to a file.
func writeFilled(name, file string, values any) error {
	text, err := fill(name, values)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
