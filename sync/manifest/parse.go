package manifest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// file is one file.
type file struct {
	at      place
	objects []*object
	unread  map[string]bool // kinds
	errs    []error

	unreadable bool
}

type parser struct {
	file
	name string
	line int    // where the document begins
	item string // of a List, or ""
}

func parse(name string, data []byte) *file {
	p := parser{name: name, line: 1, file: file{unread: map[string]bool{}}}
	if name == stdin {
		p.name = "stdin"
	}
	if len(data) > maxFileSize {
		p.fail(model.ObjectRef{}, "file is larger than 64 MiB")
		return &p.file
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
			return &p.file
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

// place is where the document begins, with the item of a List.
func (p *parser) place() string { return fmt.Sprintf("%s:%d%s", p.name, p.line, p.item) }

// fail reports an error in an object, of which the kind may be known alone, or nothing.
func (p *parser) fail(ref model.ObjectRef, message string) {
	switch n := len(p.errs); {
	case n > maxErrors:
		return
	case n == maxErrors:
		ref, message = model.ObjectRef{}, "this and later errors are left out"
	}
	text := p.place() + ": "
	if ref.Name != "" {
		text += ref.String() + ": "
	} else if ref.Kind != "" {
		text += ref.Kind + ": "
	}
	p.errs = append(p.errs, failure(text+message))
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
	if err != nil { // again, for an error with the line of the file
		object, err = sigsyaml.YAMLToJSONStrict(append(bytes.Repeat([]byte{'\n'}, p.line-1), text...))
	}
	if err != nil {
		p.fail(model.ObjectRef{}, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	p.object(object, head{})
}

// head says what an object is.
type head struct {
	metav1.TypeMeta
	Metadata struct {
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
	item := strings.TrimSuffix(h.Kind, "List")
	switch {
	case kinds[what] != nil:
		p.read(text, ref, kinds[what])
	case what == "v1 List":
		p.list(text, h.Kind, head{})
	case kinds[h.APIVersion+" "+item] != nil:
		// The items may come without apiVersion and kind, as in an API server's answer.
		p.list(text, h.Kind, head{TypeMeta: metav1.TypeMeta{APIVersion: h.APIVersion, Kind: item}})
	default:
		p.unread[what] = true
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
	outer := p.item
	for i, item := range list.Items {
		p.item = fmt.Sprintf("%s items[%d]", outer, i)
		p.object(item, of)
	}
	p.item = outer
}

// read keeps one object.
func (p *parser) read(text []byte, ref model.ObjectRef, empty kubeObject) {
	raw := empty.DeepCopyObject().(kubeObject)
	errs, err := kjson.UnmarshalStrict(text, raw)
	raw.SetNamespace(ref.Namespace)
	if ref.Kind == "Pod" {
		errs = nil // these may have fields of newer versions
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
	if len(errs) == 0 {
		p.objects = append(p.objects, &object{ref: ref, place: p.place(), raw: raw})
	}
}

// failure is an error in a file, in one line of bounded length: it quotes what is in the file.
func failure(text string) error {
	const most = 800
	if text = model.OneLine(text); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return errors.New(text)
}
