package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
)

// answer says in words what a connection's end means.
func (s *socket) answer(err error) explain.Answer {
	icmp, from := s.icmpError()
	at := ""
	if from.IsValid() {
		at = " from " + from.String()
	}
	switch {
	case err == nil:
		return explain.Answer{Result: explain.AnswerConnected}
	case errors.Is(err, errNoSocket) && errors.Is(err, unix.EPROTONOSUPPORT):
		return explain.Answer{Result: explain.AnswerFailed, Detail: "this kernel has no SCTP (module sctp)"}
	case errors.Is(err, errNoSocket):
		return explain.Answer{Result: explain.AnswerFailed, Detail: err.Error()}
	case icmp == "port unreachable":
		return explain.Answer{Result: explain.AnswerRefused, Detail: "ICMP error: port unreachable" + at}
	case icmp != "":
		return explain.Answer{Result: explain.AnswerUnreachable, Detail: fmt.Sprintf("ICMP error%s: %s", at, icmp)}
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return explain.Answer{Result: explain.AnswerRefused}
	case errors.Is(err, errSilent), errors.Is(err, unix.ETIMEDOUT):
		return explain.Answer{Result: explain.AnswerSilent}
	case errors.Is(err, unix.ENETUNREACH):
		return explain.Answer{Result: explain.AnswerUnreachable, Detail: "no route"}
	case errors.Is(err, unix.EHOSTUNREACH):
		return explain.Answer{Result: explain.AnswerUnreachable, Detail: "no route, or nothing with this address answers on the link (ARP, neighbour discovery)"}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return explain.Answer{Result: explain.AnswerUnreachable, Detail: "a rule or route of the source prohibits it"}
	}
	return explain.Answer{Result: explain.AnswerFailed, Detail: err.Error()}
}

// The names of ICMP's codes of "destination unreachable" (RFC 792, RFC 1812, RFC 4443).
var (
	unreachable4 = map[uint8]string{
		0: "no route to the network", 1: "the host is unreachable", 2: "protocol unreachable", 3: "port unreachable",
		9: "the network is administratively prohibited", 10: "the host is administratively prohibited", 13: "administratively prohibited (a firewall)",
	}
	unreachable6 = map[uint8]string{
		0: "no route", 1: "administratively prohibited (a firewall)", 3: "the address is unreachable", 4: "port unreachable",
		5: "the source address is not allowed", 6: "the route rejects it",
	}
)

// icmpError returns the meaning and the sender of the first ICMP error in the socket's error queue, or "".
func (s *socket) icmpError() (meaning string, from netip.Addr) {
	if s.fd < 0 {
		return "", netip.Addr{}
	}
	oob := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(s.fd, make([]byte, 512), oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return "", netip.Addr{}
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return "", netip.Addr{}
	}
	for _, m := range messages {
		if meaning, from = parseError(m.Data); meaning != "" {
			return meaning, from
		}
	}
	return "", netip.Addr{}
}

// parseError reads a sock_extended_err and the address of the sender behind it (ip(7)).
func parseError(b []byte) (meaning string, from netip.Addr) {
	const size = int(unsafe.Sizeof(unix.SockExtendedErr{}))
	if len(b) < size {
		return "", from
	}
	origin, kind, code := b[4], b[5], b[6]
	if len(b) >= size+2 {
		rest := b[size:]
		switch family := binary.NativeEndian.Uint16(rest); {
		case family == unix.AF_INET && len(rest) >= unix.SizeofSockaddrInet4:
			from, _ = netip.AddrFromSlice(rest[4:8])
		case family == unix.AF_INET6 && len(rest) >= unix.SizeofSockaddrInet6:
			from, _ = netip.AddrFromSlice(rest[8:24])
		}
	}
	const destUnreachable4, destUnreachable6 = 3, 1
	switch {
	case origin == unix.SO_EE_ORIGIN_ICMP && kind == destUnreachable4:
		meaning = unreachable4[code]
	case origin == unix.SO_EE_ORIGIN_ICMP6 && kind == destUnreachable6:
		meaning = unreachable6[code]
	case origin == unix.SO_EE_ORIGIN_ICMP, origin == unix.SO_EE_ORIGIN_ICMP6:
	default:
		return "", from
	}
	if meaning == "" {
		meaning = fmt.Sprintf("type %d, code %d", kind, code)
	}
	return meaning, from
}
