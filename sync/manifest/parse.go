package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/model"
)

// Limits of a file. The YAML parser bounds depth and aliases.
const (
	// maxFileSize bounds one file. The largest useful ones are dumps of a cluster.
	maxFileSize = 64 << 20
	// maxErrors bounds the errors about one file.
	maxErrors = 100
)

// file has the content of one file that is in effect: the last valid one, or the valid part of the first.
type file struct {
	at      place
	refused *file // a later content that is not valid; nil: there is none
	name    string
	objects []*object
	unread  map[string]bool // kinds
	errs    []error
}

type parser struct {
	file *file
	all  bool // see Load
	line int  // where the document begins
}

func parseFile(name string, data []byte, all bool) *file {
	p := parser{all: all, line: 1, file: &file{name: name, unread: map[string]bool{}}}
	if len(data) > maxFileSize {
		p.fail(model.ObjectRef{}, "file is larger than 64 MiB")
		return p.file
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = append(slices.Clip(data), '\n') // NewYAMLReader loses some last lines that do not end
	source := bytes.NewReader(data)
	buffer := bufio.NewReader(source)
	documents := yaml.NewYAMLReader(buffer)
	for {
		text, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF):
			return p.file
		case err != nil:
			p.fail(model.ObjectRef{}, err.Error())
		default:
			p.document(text)
		}
		read := len(data) - source.Len() - buffer.Buffered()
		p.line += bytes.Count(data[:read], []byte{'\n'})
		data = data[read:]
	}
}

// fail reports an error in an object, of which the kind may be known alone, or nothing.
func (p *parser) fail(ref model.ObjectRef, message string) {
	switch n := len(p.file.errs); {
	case n > maxErrors:
		return
	case n == maxErrors:
		ref, message = model.ObjectRef{}, "this and later errors are left out"
	}
	text := fmt.Sprintf("%s:%d: ", p.file.name, p.line)
	if ref.Name != "" {
		text += ref.String() + ": "
	} else if ref.Kind != "" {
		text += ref.Kind + ": "
	}
	p.file.errs = append(p.file.errs, failure(text+message))
}

// document reads a YAML document, or JSON values one after the other.
func (p *parser) document(text []byte) {
	for dec, first := json.NewDecoder(bytes.NewReader(text)), true; yaml.IsJSONBuffer(text); first = false {
		var value json.RawMessage
		err := dec.Decode(&value)
		switch {
		case err == nil:
			p.object(value, head{})
			continue
		case errors.Is(err, io.EOF):
			return
		case !first:
			p.fail(model.ObjectRef{}, "what follows the JSON: "+err.Error())
			return
		}
		break // YAML may begin with a brace, too
	}
	object, err := sigsyaml.YAMLToJSONStrict(text)
	if err == nil {
		p.object(object, head{})
		return
	}
	// The error has a line of the document. It is to have one of the file.
	before := bytes.Repeat([]byte{'\n'}, p.line-1)
	if _, again := sigsyaml.YAMLToJSONStrict(append(before, text...)); again != nil {
		err = again
	}
	p.fail(model.ObjectRef{}, strings.Join(strings.Fields(err.Error()), " "))
}

// head says what an object is.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

// object reads one object, or all objects of a list. It may lack its type; the default is that of h.
func (p *parser) object(text []byte, h head) {
	if string(bytes.TrimSpace(text)) == "null" {
		return
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &h) // has what it could, also after an error
	ref := model.ObjectRef{Kind: h.Kind, NamespacedName: model.NamespacedName{Name: h.Metadata.Name}}
	if h.Kind != "Node" && h.Kind != "ServiceCIDR" { // these are cluster-wide
		ref.Namespace = cmp.Or(h.Metadata.Namespace, metav1.NamespaceDefault)
	}
	if h.APIVersion == "" || h.Kind == "" {
		p.fail(ref, "every object needs an apiVersion and a kind")
		return
	}
	what := h.APIVersion + " " + h.Kind
	v := empty(what, p.all)
	switch {
	case v != nil:
		p.read(text, ref, v)
	case what == "v1 List":
		p.list(text, h.Kind, head{})
	case empty(strings.TrimSuffix(what, "List"), p.all) != nil:
		// The items may come without apiVersion and kind, as in an API server's answer.
		p.list(text, h.Kind, head{APIVersion: h.APIVersion, Kind: strings.TrimSuffix(h.Kind, "List")})
	default:
		p.file.unread[what] = true
	}
}

func (p *parser) list(text []byte, kind string, of head) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	errs, err := kjson.UnmarshalStrict(text, &list, kjson.DisallowDuplicateFields)
	if err := errors.Join(append(errs, err)...); err != nil {
		p.fail(model.ObjectRef{Kind: kind}, err.Error())
		return
	}
	for _, item := range list.Items {
		p.object(item, of)
	}
}

// read keeps one object. v is an empty one.
func (p *parser) read(text []byte, ref model.ObjectRef, v metav1.Object) {
	errs, err := kjson.UnmarshalStrict(text, v)
	v.SetNamespace(ref.Namespace)
	value := modelled(v)
	if value == nil {
		errs = nil // pods may have fields of newer versions
	}
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 && ref.Name == "" {
		errs = append(errs, errors.New("metadata.name is missing"))
	}
	for _, err := range errs {
		p.fail(ref, err.Error())
	}
	if len(errs) > 0 {
		return
	}
	o := &object{ref: ref, file: p.file.name, line: p.line, value: value}
	if p.all {
		o.raw = v
	}
	p.file.objects = append(p.file.objects, o)
}

// failure is an error in a file, in one line of bounded length: it quotes what is in the file.
func failure(text string) error {
	const most = 800
	if text = model.OneLine(text); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return errors.New(text)
}

// unreadable is an error of the file system.
func unreadable(path string, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err // its path may be one in a folder
	}
	return fmt.Errorf("cannot read %s: %w", model.OneLine(path), err)
}
