package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// SavedWith returns the output of iptables-save or ip6tables-save of the first variant that lists a
// chain, or "" if none does. It changes nothing.
func SavedWith(ctx context.Context, f model.Family, chain string) (string, error) {
	name := "iptables"
	if f == model.IPv6 {
		name = "ip6tables"
	}
	var errs []error
	for _, variant := range []string{"-nft", "-legacy", ""} {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, name+variant+"-save")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, firstLines(stderr.String())))
			continue
		}
		if strings.Contains(stdout.String(), "\n:"+chain+" ") {
			return stdout.String(), nil
		}
	}
	if len(errs) == 3 {
		return "", errors.Join(errs...)
	}
	return "", nil
}
