package config

import (
	"errors"
	"fmt"

	"github.com/vmapd/vmapd/model"
)

// ParseNodePortAddresses reads --nodeport-addresses: "primary", "all", "localhost" and
// CIDRs. An empty list means "primary". A range of loopback addresses means "localhost"
// for its family.
func ParseNodePortAddresses(list []string) (model.NodePortAddresses, error) {
	n := model.NodePortAddresses{Primary: len(list) == 0}
	var errs []error
	for _, s := range list {
		switch s {
		case "primary":
			n.Primary = true
		case "all":
			n.All = true
		case "localhost":
			n.Localhost = [len(model.Families)]bool{true, true}
		default:
			p, err := model.ParsePrefix(s)
			if err != nil {
				errs = append(errs, fmt.Errorf("%q is neither primary, all, localhost nor a CIDR", s))
				continue
			}
			if p.Addr().IsLoopback() {
				n.Localhost[model.FamilyOf(p.Addr())] = true
				continue
			}
			n.CIDRs = append(n.CIDRs, p)
		}
	}
	return n, errors.Join(errs...)
}
