package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Failure is how a connection failed, as far as a client sees it.
//
// ICMP errors do not reach every client. A UDP socket sees those of a closed port only, so a host that a router calls
// unreachable is a Timeout. TCP over IPv6 may lose the first one: in a world the answer can come back before connect(2)
// lets go of the socket. It then takes the second that the SYN is repeated after.
type Failure string

// The kinds of failure.
const (
	Refused     Failure = "refused"     // ECONNREFUSED: a TCP reset, or ICMP port unreachable
	Unreachable Failure = "unreachable" // EHOSTUNREACH or ENETUNREACH: no route, here or further on
	Timeout     Failure = "timeout"     // no answer in time: packets are dropped or lost
	Reset       Failure = "reset"       // the connection ended before its answer
	Canceled    Failure = "canceled"    // the caller's context was cancelled
	Other       Failure = "other"
)

// FailureOf returns the kind of err, an error of Dial, Ask or Conn.Ask. It must
// not be nil.
func FailureOf(err error) Failure {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case is(context.Canceled):
		return Canceled
	case is(syscall.ECONNREFUSED):
		return Refused
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH):
		return Unreachable
	case is(syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF):
		return Reset
	case is(os.ErrDeadlineExceeded, context.DeadlineExceeded, syscall.ETIMEDOUT):
		return Timeout
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return Timeout // package net has more than one value for it
	}
	return Other
}
