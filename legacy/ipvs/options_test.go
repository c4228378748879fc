package ipvs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Virtual servers have the schedulers and the persistence of their Services.
func TestSchedulersAndPersistence(t *testing.T) {
	service := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		o       ipvs.Options
		want    []string // the virtual servers as ipvsadm says them
	}{
		{"the default", service, ipvs.Options{}, []string{"-A -t 172.30.0.41:80 -s rr"}},
		{"chosen by the administrator", service, ipvs.Options{Scheduler: "lc"}, []string{"-A -t 172.30.0.41:80 -s lc"}},
		{"maglev is mh, whatever is chosen", service.Algorithm("maglev"), ipvs.Options{Scheduler: "lc"}, []string{"-A -t 172.30.0.41:80 -s mh -b mh-fallback"}},
		{
			"sh goes on where the table names one that drains",
			service,
			ipvs.Options{Scheduler: "sh"},
			[]string{"-A -t 172.30.0.41:80 -s sh -b sh-fallback"},
		},
		{"mh as kube-proxy has it", service, ipvs.Options{Scheduler: "mh"}, []string{"-A -t 172.30.0.41:80 -s mh -b mh-fallback,mh-port"}},
		{"affinity is persistence", service.Sticky(60), ipvs.Options{}, []string{"-A -t 172.30.0.41:80 -s rr -p 60"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2"))
			var got []string
			for line := range strings.Lines(ipvs.Compile(nil, s.Family(model.IPv4), tt.o).Text("ipvsadm")) {
				words := strings.Fields(line)
				if words[0] == "-A" {
					got = append(got, strings.Join(words, " "))
				}
			}
			testaid.Equal(t, "virtual servers", tt.want, got)
		})
	}
}

func TestSysctls(t *testing.T) {
	names := func(o ipvs.Options, f model.Family) string {
		var list []string
		for _, s := range o.Sysctls(f) {
			if s.Why == "" {
				t.Errorf("%s: why?", s.Name)
			}
			list = append(list, strings.TrimPrefix(s.Name, "net.ipv4.")+"="+s.Value)
		}
		return strings.Join(list, " ")
	}
	common := "vs.conntrack=1 vs.conn_reuse_mode=0 vs.expire_nodest_conn=1 vs.expire_quiescent_template=1"
	testaid.Equal(t, "IPv4", common+" ip_forward=1", names(ipvs.Options{}, model.IPv4))
	testaid.Equal(t, "strict ARP", common+" ip_forward=1 conf.all.arp_ignore=1 conf.all.arp_announce=2", names(ipvs.Options{StrictARP: true}, model.IPv4))
	testaid.Equal(t, "IPv6", common, names(ipvs.Options{StrictARP: true}, model.IPv6))
}

// A timeout that is not configured is the kernel's, whatever that is.
func TestTimeouts(t *testing.T) {
	const second = time.Second
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()).Family(model.IPv4)
	state := ipvs.Compile(nil, s, ipvs.Options{Timeouts: ipvs.Timeouts{TCP: 60 * second}})
	for tcp, want := range map[time.Duration]string{60 * second: "", 900 * second: "ipvsadm --set 60 0 0\n"} {
		c := state.Content()
		c.Timeouts = ipvs.Timeouts{TCP: tcp, TCPFin: 120 * second, UDP: 300 * second}
		testaid.Equal(t, "operations", want, ipvssim.Text(ipvs.DiffContent(c, state)))
	}
}
