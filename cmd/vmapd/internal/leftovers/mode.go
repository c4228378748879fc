package leftovers

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// ProxyMode asks a proxy at an address of metrics for its mode, as kube-proxy serves it; "" if none answers.
func ProxyMode(ctx context.Context, address string) string {
	const timeout, longest = time.Second, 16
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/proxyMode", nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	mode, err := io.ReadAll(io.LimitReader(response.Body, longest))
	modes := []config.Backend{config.NFTables, config.IPTables, config.IPVS, config.Userspace}
	if err != nil || !slices.Contains(modes, config.Backend(mode)) {
		return ""
	}
	return string(mode)
}
