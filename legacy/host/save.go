package host

import (
	"context"
	"errors"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// SavedWith returns the output of iptables-save or ip6tables-save of the first variant that lists a
// chain, or "" if none does. It changes nothing.
func SavedWith(ctx context.Context, f model.Family, chain string) (string, error) {
	name, _ := programsOf(f)
	variants := []string{"-nft", "-legacy", ""}
	var errs []error
	for _, variant := range variants {
		out, err := listing(ctx, name+variant)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if strings.Contains(out.String(), "\n:"+chain+" ") {
			return out.String(), nil
		}
	}
	if len(errs) == len(variants) {
		return "", errors.Join(errs...)
	}
	return "", nil
}
