package host_test

import (
	"context"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/nettest"
)

// comparer is a backend.
type comparer interface {
	Apply(ctx context.Context, s *model.Snapshot) error
	Compare(ctx context.Context, f model.Family, s *model.Snapshot, of *model.ServicePort) ([]string, error)
}

// differences returns those of both families.
func differences(t *testing.T, b comparer, s *model.Snapshot) (all []string) {
	t.Helper()
	for _, f := range model.Families {
		list, err := b.Compare(t.Context(), f, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list...)
	}
	return all
}

// compares checks that nothing differs at first and after changes, that everything differs from another
// snapshot, and that each command makes a difference.
func compares(t *testing.T, b comparer, commands map[string]string) {
	t.Helper()
	builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
	first := builder.Snapshot()
	oneWeb.Set(builder)
	second := builder.Snapshot()
	if list := differences(t, b, first); len(list) == 0 {
		t.Error("nothing differs from an empty kernel")
	}
	for _, s := range []*model.Snapshot{first, second, first} {
		if err := b.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if list := differences(t, b, s); len(list) > 0 {
			t.Errorf("after Apply there are differences:\n%s", strings.Join(list, "\n"))
		}
	}
	if list := differences(t, b, second); len(list) == 0 {
		t.Error("another snapshot makes no difference")
	}
	for command, want := range commands {
		nettest.Run(t, "", "sh", "-c", command)
		if list := differences(t, b, first); len(list) == 0 || !strings.Contains(strings.Join(list, "\n"), want) {
			t.Errorf("after %s want %q, got:\n%s", command, want, strings.Join(list, "\n"))
		}
	}
}

func TestCompareRules(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		b := openIPTables(t, variant)
		compares(t, b, map[string]string{
			"iptables" + variant + " -t nat -F VMAPD-POSTROUTING":                "chain VMAPD-POSTROUTING of table nat is missing or different",
			"iptables" + variant + " -t nat -N VMAPD-OLD":                        "chain VMAPD-OLD of table nat is too many",
			"iptables" + variant + " -t filter -D FORWARD 1":                     "a jump is missing or in another place: -I FORWARD 1",
			"ip6tables" + variant + " -t nat -I OUTPUT -s 2001:db8::7 -j ACCEPT": "a jump is missing or in another place: -D OUTPUT",
		})
	})
}

func TestCompareServers(t *testing.T) {
	nettest.Enter(t)
	b, _ := openIPVS(t, ipvs.Options{})
	compares(t, b, map[string]string{
		"ipvsadm -d -t 172.30.0.41:80 -r 10.0.0.4:8080":            "-r 10.0.0.4:8080",
		"ipvsadm -D -u 172.30.0.41:53":                             "172.30.0.41:53",
		"ip address delete 172.30.0.42/32 dev vmapd-ipvs0":         "ip address add 172.30.0.42/32",
		"ipset flush VMAPD-SERVICES":                               "ipset add VMAPD-SERVICES",
		"iptables -t nat -I POSTROUTING -s 198.51.100.7 -j ACCEPT": "iptables-restore --noflush",
	})
}
