package socket

import "net/http"

// Error is an answer that is not the requested value. A [Route] returns it to choose the status;
// [Client.Get] returns it.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// NotFound returns the error of a request for an object that does not exist.
func NotFound(message string) *Error { return &Error{http.StatusNotFound, message} }

// BadRequest returns the error of a request that can't be understood.
func BadRequest(message string) *Error { return &Error{http.StatusBadRequest, message} }
