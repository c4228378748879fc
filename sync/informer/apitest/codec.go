package apitest

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/kubernetes/scheme"
)

// codec is a format of answers.
type codec int

const (
	inJSON codec = iota
	inProtobuf
)

func (c codec) info() runtime.SerializerInfo {
	mediaType := runtime.ContentTypeJSON
	if c == inProtobuf {
		mediaType = runtime.ContentTypeProtobuf
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic("apitest: no serializer for " + mediaType)
	}
	return info
}

// accepted is the first format of the Accept header that the server speaks; JSON if
// there is none.
func (s *Server) accepted(r *http.Request) codec {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		mediaType, _, _ := mime.ParseMediaType(part)
		switch {
		case mediaType == runtime.ContentTypeJSON:
			return inJSON
		case mediaType == runtime.ContentTypeProtobuf && !s.opts.JSONOnly:
			return inProtobuf
		}
	}
	return inJSON
}

func (c codec) encode(obj runtime.Object) []byte {
	var b bytes.Buffer
	if err := c.info().Serializer.Encode(obj, &b); err != nil {
		panic(fmt.Sprintf("apitest: encode %T: %v", obj, err))
	}
	return b.Bytes()
}

// frame is one event of a watch, whose object is encoded already. In JSON, an encoder would read it
// again, which takes longer than clients do.
func (c codec) frame(kind string, object []byte) []byte {
	if c == inJSON {
		return slices.Concat([]byte(`{"type":"`+kind+`","object":`), bytes.TrimSpace(object), []byte("}\n"))
	}
	var b bytes.Buffer
	stream := c.info().StreamSerializer
	err := streaming.NewEncoder(stream.NewFrameWriter(&b), stream.Serializer).
		Encode(&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}})
	if err != nil {
		panic(fmt.Sprintf("apitest: encode an event: %v", err))
	}
	return b.Bytes()
}

// encoded is an object in each format, encoded when it is first needed.
type encoded [2]func() []byte

func encode(obj runtime.Object) encoded {
	var out encoded
	for c := range out {
		out[c] = sync.OnceValue(func() []byte { return codec(c).encode(obj) })
	}
	return out
}

func kindOf(obj runtime.Object) schema.GroupVersionKind {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	must(err)
	return kinds[0]
}

func newObject(kind schema.GroupVersionKind) runtime.Object {
	obj, err := scheme.Scheme.New(kind)
	must(err)
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj
}
