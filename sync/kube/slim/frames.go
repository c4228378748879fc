package slim

import (
	"bufio"
	"errors"
	"io"
)

// frames reads JSON values one by one: each Read returns one, or with [io.ErrShortBuffer] a part of it.
// client-go's reader would decode each value to find its end.
type frames struct {
	io.Closer
	from  *bufio.Reader
	value value
}

func newFrames(r io.ReadCloser) *frames {
	const buffer = 64 << 10
	return &frames{Closer: r, from: bufio.NewReaderSize(r, buffer)}
}

func (f *frames) Read(to []byte) (n int, err error) {
	for {
		if _, err := f.from.Peek(1); err != nil {
			if errors.Is(err, io.EOF) && (n > 0 || f.value.begun) {
				if f.value.ended() {
					f.value = value{}
					return n, nil
				}
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		buffered, _ := f.from.Peek(f.from.Buffered())
		if !f.value.begun {
			if space := leadingSpace(buffered); space > 0 {
				_, _ = f.from.Discard(space)
				continue
			}
		}
		if n == len(to) {
			return n, io.ErrShortBuffer
		}
		read, done := f.value.scan(buffered[:min(len(buffered), len(to)-n)])
		if read == 0 && !f.value.begun { // no value begins so
			read = 1
			done = true
		}
		n += copy(to[n:], buffered[:read])
		_, _ = f.from.Discard(read)
		if done {
			f.value = value{}
			return n, nil
		}
	}
}

func leadingSpace(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return i
		}
	}
	return len(b)
}
