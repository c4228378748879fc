package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/model"
)

// Limits of a manifest, so that no input exhausts the machine.
const (
	// maxFileSize bounds one file. The largest useful ones are dumps of a cluster.
	maxFileSize = 64 << 20
	// maxValues bounds one document. The YAML parser needs a few hundred bytes for each value, which
	// may be one character long.
	maxValues = 2 << 20
	// maxLists bounds the nesting of Lists: JSON is scanned again at each level.
	maxLists = 10
	// maxErrors bounds the errors about one file.
	maxErrors = 100
)

// file has the contents of one file.
type file struct {
	name    string
	objects []*object
	unread  map[string]bool // kinds
	errs    []Error
}

type parser struct {
	file *file
	all  bool // see LoadAll
	seen map[model.ObjectRef]*object
	line int // where the document begins
}

func parseFile(name string, data []byte, all bool) *file {
	p := parser{all: all, file: &file{name: name, unread: make(map[string]bool)}, seen: make(map[model.ObjectRef]*object)}
	if len(data) > maxFileSize {
		p.errorf(model.ObjectRef{}, "", "file is larger than %d MiB", maxFileSize>>20)
		return p.file
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = append(slices.Clip(data), '\n') // NewYAMLReader loses some last lines that do not end
	source := bytes.NewReader(data)
	buffer := bufio.NewReader(source)
	documents := yaml.NewYAMLReader(buffer)
	for line := 1; ; {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		read := len(data) - source.Len() - buffer.Buffered()
		before, _ := skip(data[:read])
		p.line = line + before
		line += bytes.Count(data[:read], []byte{'\n'})
		data = data[read:]
		if err != nil {
			p.errorf(model.ObjectRef{}, "", "%v", err)
		} else if _, text := skip(text); len(text) > 0 {
			p.document(text)
		}
	}
	return p.file
}

// skip returns the number of lines before the content of a document, and the rest: the first have only white
// space, comments, directives (%YAML 1.2), or the separator.
func skip(text []byte) (lines int, rest []byte) {
	for row := range bytes.Lines(text) {
		word := bytes.TrimSpace(bytes.TrimPrefix(row, []byte("---")))
		if len(word) > 0 && word[0] != '#' && word[0] != '%' {
			break
		}
		lines++
		text = text[len(row):]
	}
	return lines, text
}

func (p *parser) errorf(ref model.ObjectRef, field, format string, args ...any) {
	if len(p.file.errs) > maxErrors {
		return
	}
	if len(p.file.errs) == maxErrors {
		ref, field, format, args = model.ObjectRef{}, "", "this and later errors are left out", nil
	}
	p.file.errs = append(p.file.errs, Error{
		File: p.file.name, Line: p.line, Object: ref, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// document reads a YAML document, or JSON values one after the other.
func (p *parser) document(text []byte) {
	if values(text) > maxValues {
		p.errorf(model.ObjectRef{}, "", "document has more than %d values: split it with ---", maxValues)
		return
	}
	if yaml.IsJSONBuffer(text) && p.stream(text) {
		return
	}
	object, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		p.errorf(model.ObjectRef{}, "", "%s", p.syntax(err))
		return
	}
	p.object(object, typeMeta{}, 0)
}

// stream reads JSON values one after the other. It returns false if text does not begin with one: YAML may begin
// with a brace, too.
func (p *parser) stream(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	for at := 0; ; {
		var value json.RawMessage
		switch err := dec.Decode(&value); {
		case errors.Is(err, io.EOF):
			return true
		case err != nil && at == 0:
			return false
		case err != nil:
			p.errorf(model.ObjectRef{}, "", "what follows the JSON: %v", err)
			return true
		}
		begin := int(dec.InputOffset()) - len(value)
		p.line += bytes.Count(text[at:begin], []byte{'\n'})
		p.object(value, typeMeta{}, 0)
		p.line += bytes.Count(value, []byte{'\n'})
		at = begin + len(value)
	}
}

// values estimates the number of values in text from above: it counts line breaks, some of which only YAML
// has, and what separates values in one line.
func values(text []byte) (n int) {
	for _, b := range text {
		switch b {
		case '\n', '\r', 0x85, 0xa8, 0xa9, ',', '[', '{':
			n++
		}
	}
	return n
}

var lineNumber = regexp.MustCompile(`(?m)line (\d+): `)

// syntax returns the text of the YAML parser's error in one line, with the lines of the file.
func (p *parser) syntax(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "unmarshal errors:")), " ")
	return lineNumber.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(strings.Trim(s, "line: "))
		return fmt.Sprintf("line %d: ", p.line+n-1)
	})
}
