package ipvs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Operations on virtual and real servers as options of ipvsadm.

func (o AddServer) String() string { return "ipvsadm " + o.Text() }

// Text returns a line for ipvsadm -R.
func (o AddServer) Text() string { return "-A " + serverText(o.Key, o.Server) }

func (o UpdateServer) String() string { return "ipvsadm -E " + serverText(o.Key, o.Server) }

func (o DeleteServer) String() string { return "ipvsadm -D " + keyText(o.Key) }

func (o AddReal) String() string { return "ipvsadm " + o.Text() }

// Text returns a line for ipvsadm -R.
func (o AddReal) Text() string {
	return fmt.Sprintf("-a %s -r %v -m -w %d", keyText(o.Key), o.Addr, o.Weight)
}

func (o DrainReal) String() string {
	return fmt.Sprintf("ipvsadm -e %s -r %v -m -w 0, and when idle -d", keyText(o.Key), o.Addr)
}

func (o DeleteReal) String() string {
	return fmt.Sprintf("ipvsadm -d %s -r %v", keyText(o.Key), o.Addr)
}

func keyText(k Key) string {
	option := map[model.Protocol]string{model.TCP: "-t", model.UDP: "-u", model.SCTP: "--sctp-service"}[k.Protocol]
	return option + " " + netip.AddrPortFrom(k.Addr, k.Port).String()
}

func serverText(k Key, s Server) string {
	text := keyText(k) + " -s " + s.Scheduler
	if flags := s.schedulerFlags(); flags != "" {
		text += " -b " + flags
	}
	if s.Flags&Persistent != 0 {
		text += fmt.Sprintf(" -p %.0f", s.Timeout.Seconds())
	}
	return text
}

func (s Server) schedulerFlags() string {
	if s.Scheduler != "sh" && s.Scheduler != "mh" {
		return ""
	}
	var flags []string
	if s.Flags&Fallback != 0 {
		flags = append(flags, s.Scheduler+"-fallback")
	}
	if s.Flags&HashPort != 0 {
		flags = append(flags, s.Scheduler+"-port")
	}
	return strings.Join(flags, ",")
}
