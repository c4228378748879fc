package reconcile

// LastError is the last result of something that is tried again and again, so that an error that lasts is logged once.
// The zero value is a success.
type LastError struct{ text string }

// Differs takes the next result, which is nil after a success. It reports whether that is a new error, or the end of
// one.
func (e *LastError) Differs(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	differs := text != e.text
	e.text = text
	return differs
}
