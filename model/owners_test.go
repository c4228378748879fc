package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model/modeltest"
)

func TestTheOldestClaimantWins(t *testing.T) {
	const shared = "192.168.99.11"
	older := modeltest.NewService("ns2/older").CreatedAt(1).On("172.30.0.41").TCP("a", 80).External(shared)
	younger := modeltest.NewService("ns1/younger").CreatedAt(2).On("172.30.0.42").TCP("b", 80).External(shared)
	youngest := modeltest.NewService("ns1/youngest").CreatedAt(3).On("172.30.0.43").TCP("c", 80).External(shared)

	olderHas := "ns2/older:a/tcp [172.30.0.41:80 reject, 192.168.99.11:80 reject masquerade]"
	youngerHas := "ns1/younger:b/tcp [172.30.0.42:80 reject, 192.168.99.11:80 reject masquerade]"
	youngerHasNot := "ns1/younger:b/tcp [172.30.0.42:80 reject]"
	youngestHasNot := "ns1/youngest:c/tcp [172.30.0.43:80 reject]"
	complaint := func(who, port, winner string) string {
		return "Service " + who + `: external IP 192.168.99.11:80/tcp of port "` + port + `" belongs to Service ` + winner + ", which is older"
	}

	// Other orders are those of random changes.
	b := modeltest.Builder(modeltest.Config(), youngest, younger, older)
	checkPorts(t, b.Snapshot(), youngerHasNot, youngestHasNot, olderHas)
	checkProblems(t, b.Snapshot(),
		complaint("ns1/younger", "b", "ns2/older"), complaint("ns1/youngest", "c", "ns2/older"))
	older.Delete(b)
	checkPorts(t, b.Snapshot(), youngerHas, youngestHasNot)
	checkProblems(t, b.Snapshot(), complaint("ns1/youngest", "c", "ns1/younger"))
	older.Set(b)
	checkPorts(t, b.Snapshot(), youngerHasNot, youngestHasNot, olderHas)
	older.External().Set(b)
	checkPorts(t, b.Snapshot(), youngerHas, youngestHasNot, "ns2/older:a/tcp [172.30.0.41:80 reject]")

	t.Run("of equally old ones the first in the alphabet wins", func(t *testing.T) {
		first := modeltest.NewService("ns1/a").On("172.30.0.41").TCP("", 80).External(shared)
		second := modeltest.NewService("ns1/b").On("172.30.0.42").TCP("", 80).External(shared)
		third := modeltest.NewService("ns2/a").On("172.30.0.43").TCP("", 80).External(shared)
		list := objects{third, second, first}
		for range 3 {
			list = append(list[1:], list[0])
			checkPorts(t, modeltest.Snapshot(modeltest.Config(), list...),
				"ns1/a/tcp [172.30.0.41:80 reject, 192.168.99.11:80 reject masquerade]",
				"ns1/b/tcp [172.30.0.42:80 reject]",
				"ns2/a/tcp [172.30.0.43:80 reject]")
		}
	})

	t.Run("different ports of one address are no conflict", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), older,
			modeltest.NewService("ns1/b").On("172.30.0.42").TCP("", 81).UDP("udp", 80).External(shared))
		checkPorts(t, s,
			"ns1/b/tcp [172.30.0.42:81 reject, 192.168.99.11:81 reject masquerade]",
			"ns1/b:udp/udp [172.30.0.42:80 reject, 192.168.99.11:80 reject masquerade]",
			olderHas)
		checkProblems(t, s)
	})

	t.Run("node ports are claimed like addresses", func(t *testing.T) {
		a := modeltest.NewService("ns1/a").CreatedAt(2).On("172.30.0.41").TCP("", 80).NodePort(30001)
		b := modeltest.NewService("ns1/b").CreatedAt(1).On("172.30.0.42").TCP("", 80).NodePort(30001)
		s := modeltest.Snapshot(modeltest.Config(), a, b)
		checkPorts(t, s, "ns1/a/tcp [172.30.0.41:80 reject]", "ns1/b/tcp [172.30.0.42:80 reject, :30001 reject masquerade]")
		checkProblems(t, s, `Service ns1/a: node port 30001/tcp of port "" belongs to Service ns1/b, which is older`)
	})
}
