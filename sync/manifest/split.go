package manifest

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// document is a part of a file that can be parsed on its own.
type document struct {
	file string
	text []byte
	line int // of the file, where text begins
}

// split cuts text at the lines that separate YAML documents: "---" begins one, also with text
// behind it, and "..." ends one. Neither can be at the start of a line within a document
// (YAML 1.2, 9.1.4), nor within valid JSON. This works before parsing, so that an invalid
// document does not affect others.
func split(file string, text []byte) []document {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var docs []document
	doc := document{file: file, line: 1}
	start, line := 0, 1
	cut := func(at int) {
		doc.text = text[start:at]
		if !blank(doc.text) {
			docs = append(docs, doc)
		}
	}
	at := 0
	for row := range bytes.Lines(text) {
		end := at + len(row)
		switch {
		case marker(row, "---"):
			cut(at)
			start, doc.line = at+len("---"), line
		case marker(row, "..."):
			cut(at)
			start, doc.line = end, line+1
		}
		at = end
		line++
	}
	cut(len(text))
	return docs
}

// marker reports whether row is m, alone or before white space.
func marker(row []byte, m string) bool {
	rest, ok := bytes.CutPrefix(row, []byte(m))
	return ok && (len(rest) == 0 || rest[0] == '\n' || rest[0] == '\r' || rest[0] == ' ' || rest[0] == '\t')
}

// blank reports whether text has only white space, comments and directives (%YAML 1.2).
func blank(text []byte) bool {
	for row := range bytes.Lines(text) {
		word := bytes.TrimSpace(row)
		if len(word) > 0 && word[0] != '#' && row[0] != '%' {
			return false
		}
	}
	return true
}

// isJSON reports whether doc is meant to be JSON: YAML may begin with a brace, too.
func (d document) isJSON() bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(d.text), []byte{'{'})
	rest = bytes.TrimSpace(rest)
	return strings.HasSuffix(d.file, ".json") || ok && len(rest) > 0 && (rest[0] == '"' || rest[0] == '}')
}

// parse returns the values in the document before the first error.
func (d document) parse() ([]*yaml.Node, *syntaxError) {
	var jsonErr *syntaxError
	if d.isJSON() {
		if err := checkJSON(d.text, d.line); err != nil {
			return nil, err
		}
		var roots []*yaml.Node
		if roots, jsonErr = parseJSON(string(d.text), d.line); jsonErr == nil || len(roots) > 0 {
			return roots, jsonErr
		}
	}
	root, err := parseYAML(d.text, d.line)
	switch {
	case err != nil && jsonErr != nil:
		return nil, jsonErr // it was more likely meant as JSON
	case err != nil || root == nil:
		return nil, err
	}
	return []*yaml.Node{root}, nil
}

// checkText returns the line and a description of bytes that no manifest can have.
func checkText(text []byte) (line int, message string) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return 1, "is UTF-16 text: only UTF-8 is supported"
	}
	bad := bytes.IndexByte(text, 0)
	message = "contains a NUL byte: not a text file"
	if bad < 0 {
		if utf8.Valid(text) {
			return 0, ""
		}
		for bad = 0; ; {
			r, size := utf8.DecodeRune(text[bad:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			bad += size
		}
		message = fmt.Sprintf("contains the byte 0x%02x, which is not UTF-8: not a text file", text[bad])
	}
	return 1 + bytes.Count(text[:bad], []byte{'\n'}), message
}
