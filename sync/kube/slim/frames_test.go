package slim

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readFrames reads all frames, with room for so many bytes at a time.
func readFrames(t *testing.T, from io.Reader, room int) (frames []string, err error) {
	t.Helper()
	r := newFrames(io.NopCloser(from))
	var frame []byte
	for {
		buffer := make([]byte, room)
		n, err := r.Read(buffer)
		frame = append(frame, buffer[:n]...)
		switch {
		case err == nil:
			frames, frame = append(frames, string(frame)), nil
		case errors.Is(err, io.EOF):
			return frames, nil
		case !errors.Is(err, io.ErrShortBuffer):
			return append(frames, string(frame)), err
		case n == 0:
			t.Fatal("nothing was read where there was room")
		}
	}
}

func TestFrames(t *testing.T) {
	want := []string{
		`{"type":"ADDED","object":{"a":"}{","b":["]\"","\\"]}}`, "{\n  \"a\": {\n  },\n  \"b\": \"\\\\\\\"\"\n}", `{}`, `[{"a":[1,2]}]`, `"a b"`, `7`, `true`,
		"{\"long\":\"" + strings.Repeat("x", 200_000) + "\"}", `{"end":-1.5e9}`,
	}
	for _, text := range []string{strings.Join(want, "\n"), strings.Join(want, "\r\n \t") + "\n"} {
		for _, room := range []int{1, 2, 7, 1 << 10, 1 << 20} {
			for name, from := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
				got, err := readFrames(t, from, room)
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Errorf("%s, room for %d: %v (-want +got):\n%.2000s", name, room, err, diff)
				}
			}
		}
	}
}

func TestFramesThatAreCutOff(t *testing.T) {
	for _, text := range []string{`{"a":1`, `{"a":"`, `{"a":"\`, `[`, `"a`} {
		got, err := readFrames(t, strings.NewReader(`{} `+text), 4)
		if diff := cmp.Diff([]string{"{}", text}, got); diff != "" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	got, err := readFrames(t, strings.NewReader("}]x{}"), 4) // the decoder refuses them
	if diff := cmp.Diff([]string{"}", "]", "x{}"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	broken := errors.New("broken")
	if _, err := readFrames(t, io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken)), 4); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the connection", err)
	}
}

func TestEvents(t *testing.T) {
	for text, want := range map[string]metav1.WatchEvent{
		`{"type":"ADDED","object":{"a":"}"}}`:                      {Type: "ADDED"},
		`{ "object" : {"a":"}"} , "more":[1], "type":"A" }` + "\n": {Type: "A"},
	} {
		want.Object.Raw = []byte(`{"a":"}"}`)
		var got metav1.WatchEvent
		if !readEvent([]byte(text), &got) {
			t.Errorf("%s: not read", text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	const canonical = `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","spec":{}}}`
	var e metav1.WatchEvent
	if want := `{"kind":"Service","apiVersion":"v1","spec":{}}`; !readEvent([]byte(canonical), &e) || e.Type != "ADDED" || string(e.Object.Raw) != want {
		t.Errorf("%s: got %s %s, want %s", canonical, e.Type, e.Object.Raw, want)
	}
	for _, text := range []string{
		strings.Replace(canonical, "ADDED", `A\"`, 1), strings.Replace(canonical, ":", " : ", 1), canonical + "\n",
		strings.TrimSuffix(canonical, "}") + `,"more":[]}`, `{"type":"A","b":"","object":{"kind":"Service"}}`,
	} {
		if kind, object, ok := cutEvent([]byte(text)); ok {
			t.Errorf("%s: cut into %s and %s", text, kind, object)
		}
	}
	for _, text := range []string{"", "{}", `{"type":"ADDED"}`, `{"object":{}}`, `{"type":7,"object":{}}`, `{"type":"A","object":{}} 7`, `{"type":"A","object":{`} {
		var got metav1.WatchEvent
		if readEvent([]byte(text), &got) || got.Type != "" {
			t.Errorf("%s: got %+v", text, got)
		}
	}
}
