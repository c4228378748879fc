// Package logonce has what it takes to log an error that lasts only once.
package logonce

// Error is the last result of something that is tried again and again. The zero value is a success.
type Error struct{ text string }

// Differs takes the next result, which is nil after a success. It reports whether that is a new error, or the end of
// one.
func (e *Error) Differs(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	differs := text != e.text
	e.text = text
	return differs
}
