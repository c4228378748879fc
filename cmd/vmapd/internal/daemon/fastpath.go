package daemon

import (
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/nft/kernel"
)

// fastPath says whether connections take the fast path, and by which devices; "" if nobody wants that. lacks reports
// whether some that should can't.
func (p *dataplane) fastPath(wanted bool) (text string, lacks bool) {
	if !wanted {
		return "", false
	}
	if p.nft == nil {
		return fmt.Sprintf("not possible: the backend %s has none", p.name), true
	}
	var parts []string
	for _, f := range p.nft.FastPaths() {
		part, bad := fastPathOf(f)
		parts, lacks = append(parts, part), lacks || bad
	}
	if len(parts) == 2 && strings.TrimPrefix(parts[0], "IPv4: ") == strings.TrimPrefix(parts[1], "IPv6: ") {
		parts = []string{"IPv4 and " + parts[1]}
	}
	return strings.Join(parts, "; "), lacks
}

func fastPathOf(f kernel.FastPath) (text string, lacks bool) {
	switch {
	case f.Lacks != nil:
		return fmt.Sprintf("%v: not possible: %v", f.Family, f.Lacks), true
	case f.Refused != nil:
		return fmt.Sprintf("%v: %s; %v", f.Family, devicesText(f.Devices), f.Refused), true
	case len(f.Devices) == 0:
		return fmt.Sprintf("%v: on, with no device yet", f.Family), false
	}
	return fmt.Sprintf("%v: on, with %s", f.Family, devicesText(f.Devices)), false
}

// devicesText names a few devices, and says how many there are.
func devicesText(names []string) string {
	const named = 5
	text := strings.Join(names[:min(len(names), named)], ", ")
	if more := len(names) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d devices (%s)", len(names), text)
}
