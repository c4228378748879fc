package preflight

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

func hasNodePort(_ *comparison, s *model.Service) bool {
	return slices.ContainsFunc(s.Ports, func(p model.Port) bool { return p.NodePort > 0 })
}

func hasSCTP(_ *comparison, s *model.Service) bool {
	return slices.ContainsFunc(s.Ports, func(p model.Port) bool { return p.Protocol == "SCTP" })
}

func hasAffinity(_ *comparison, s *model.Service) bool { return s.SessionAffinity == "ClientIP" }

func hasProblem(c *comparison, s *model.Service) bool { return len(c.problems[s.NamespacedName]) > 0 }

// ingress are the load balancers' addresses of a Service that the node serves (KEP-1860).
func ingress(s *model.Service) (list []string) {
	for _, i := range s.Ingress {
		if i.IP != "" && i.IPMode != "Proxy" {
			list = append(list, i.IP)
		}
	}
	return list
}

func hasAddressInServiceCIDR(c *comparison, s *model.Service) bool {
	return slices.ContainsFunc(slices.Concat(s.ExternalIPs, ingress(s)), func(text string) bool {
		a, err := model.ParseAddr(text)
		return err == nil && slices.ContainsFunc(c.snapshot.Family(model.FamilyOf(a)).ServiceCIDRs,
			func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// hasRestrictedExternalIP reports whether source ranges apply to an address that is an external IP, too.
func hasRestrictedExternalIP(_ *comparison, s *model.Service) bool {
	return len(s.SourceRanges) > 0 &&
		slices.ContainsFunc(ingress(s), func(ip string) bool { return slices.Contains(s.ExternalIPs, ip) })
}

func hasLocalPolicy(_ *comparison, s *model.Service) bool {
	return s.InternalTrafficPolicy == "Local" || s.ExternalTrafficPolicy == "Local"
}

func hasHealthCheck(_ *comparison, s *model.Service) bool {
	return s.HealthCheckNodePort != 0 && s.Type == "LoadBalancer" && s.ExternalTrafficPolicy == "Local"
}

func hasNodeHints(c *comparison, s *model.Service) bool { return c.hinted[s.NamespacedName] }

// nodePortAddrs are the addresses on which vmapd's node ports answer, as far as they are known.
func (c *comparison) nodePortAddrs() string {
	var list []string
	for _, f := range model.Families {
		for _, a := range c.snapshot.Family(f).NodePortAddrs {
			list = append(list, a.String())
		}
	}
	if len(list) == 0 {
		return "the node's primary addresses"
	}
	return strings.Join(list, " and ")
}
