// Package devices follows the network devices with packets on the fast path.
package devices

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/rtnetlink"
)

// Follow calls changed with the names of the chosen devices of a network namespace, sorted, when they are known and
// after each change, also of a device behind a name, until ctx ends. After an error it keeps those that are known, logs
// the error once, and tries again.
func Follow(ctx context.Context, log *slog.Logger, choice Choice, changed func(names []string)) {
	f := rtnetlink.Follower[device]{
		Log: log, What: "the devices of the fast path", Groups: []uint{unix.RTNLGRP_LINK},
		List: func(handle *netlink.Handle) ([]device, error) {
			all, err := handle.LinkList()
			return choice.of(all), err
		},
		Changed: func(chosen []device) {
			names := make([]string, len(chosen))
			for i, d := range chosen {
				names[i] = d.name
			}
			log.Debug("devices of the fast path", slog.Any("devices", names))
			changed(names)
		},
	}
	f.Run(ctx)
}

// Choice says which devices are chosen. The zero value chooses none.
type Choice struct {
	Auto     bool
	Patterns []string // names; with * at the end, beginnings of names
}

// On reports whether any device can be chosen.
func (c Choice) On() bool { return c.Auto || len(c.Patterns) > 0 }

// Parse reads a choice: "off", "auto", or patterns with commas between them.
func Parse(text string) (Choice, error) {
	switch text {
	case "", "off":
		return Choice{}, nil
	case "auto":
		return Choice{Auto: true}, nil
	}
	var c Choice
	for p := range strings.SplitSeq(text, ",") {
		p = strings.TrimSpace(p)
		name := strings.TrimSuffix(p, "*")
		if wrong := model.CheckInterface(name, true); wrong != nil || strings.Trim(name, ".") == "" ||
			p == "off" || p == "auto" {
			return Choice{}, fmt.Errorf("%q is no name of a device, nor the beginning of one with * behind it", p)
		}
		c.Patterns = append(c.Patterns, p)
	}
	return c, nil
}

type device struct {
	name  string
	index int
}

// of returns the devices that are chosen, by name; not nil.
func (c Choice) of(links []netlink.Link) []device {
	chosen := []device{}
	for _, l := range links {
		if a := l.Attrs(); c.wants(a, l.Type()) {
			chosen = append(chosen, device{a.Name, a.Index})
		}
	}
	slices.SortFunc(chosen, func(a, b device) int { return strings.Compare(a.name, b.name) })
	return chosen
}

// wants reports whether a device is chosen. auto takes the Ethernet devices that packets are forwarded between. A part
// of a bond hands its packets to the bond before they are looked up; the port of a bridge does not. Tunnels without
// Ethernet have to be named.
func (c Choice) wants(a *netlink.LinkAttrs, kind string) bool {
	if c.Auto {
		isPart := a.Slave != nil && (a.Slave.SlaveType() == "bond" || a.Slave.SlaveType() == "team")
		return a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0 && !isPart &&
			!slices.Contains([]string{"dummy", "ifb", "nlmon"}, kind)
	}
	return slices.ContainsFunc(c.Patterns, func(p string) bool {
		prefix, ok := strings.CutSuffix(p, "*")
		return p == a.Name || ok && strings.HasPrefix(a.Name, prefix)
	})
}
