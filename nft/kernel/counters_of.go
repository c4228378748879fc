package kernel

import (
	"cmp"
	"fmt"

	"github.com/google/nftables"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// ConnectionsTo returns the numbers of new connections to some service ports of tables with counters. Those that can't
// be read are missing, and the error is that of the first.
func ConnectionsTo(ports []*model.ServicePort) (map[*model.ServicePort]uint64, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.CloseLasting() }()
	counts := map[*model.ServicePort]uint64{}
	for _, sp := range ports {
		n, failed := connectionsTo(conn, sp)
		if failed == nil {
			counts[sp] = n
		}
		err = cmp.Or(err, failed)
	}
	return counts, err
}

// connectionsTo reads the counters of one service port, and of no other: the maps have those of all.
func connectionsTo(conn *nftables.Conn, sp *model.ServicePort) (sum uint64, err error) {
	families := [...]nftables.TableFamily{model.IPv4: nftables.TableFamilyIPv4, model.IPv6: nftables.TableFamilyIPv6}
	table := &nftables.Table{Name: nft.TableName, Family: families[sp.Family]}
	for _, fe := range sp.Frontends {
		maps := nft.FrontendsOf(fe.Kind)
		key := []nftables.SetElement{{Key: []byte(maps.Key(fe.VIP))}}
		found, err := conn.FindSetElements(&nftables.Set{Table: table, Name: maps.Counters}, key)
		if err != nil || len(found) != 1 || found[0].Counter == nil {
			return 0, cmp.Or(err, fmt.Errorf("the kernel has no counter of %v", fe.VIP))
		}
		sum += found[0].Counter.Packets
	}
	return sum, nil
}
