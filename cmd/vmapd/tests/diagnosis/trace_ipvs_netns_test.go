package diagnosis

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// IPVS takes a packet at the hook input, where no rule shows it, and sends it on at the hook output.
func TestTraceByIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	w, known := traceWorld(t, "--backend=ipvs")
	for _, tt := range []struct {
		name, network, dest string
		want                []string
	}{
		{"an endpoint accepts", "tcp", "172.30.0.10:80", []string{
			"2. input, from eth0\n", "3. output, to veth",
			"=> forwarded to 10.0.0.", ", which accepted it.\n", "\nThis is what vmapd expects.\n",
		}},
		{"an endpoint answers over UDP and IPv6", "udp", "[fd00:172:30::10]:80", []string{
			"=> forwarded to [fd00:10::",
			"\nThis is what vmapd expects.\n",
		}},
		{"a silent endpoint", "tcp", "172.30.0.60:80", []string{
			"=> forwarded to 10.0.0.2:7",
			", which did not answer within 500ms.\n",
		}},
		{
			"nothing listens", "tcp", "172.30.0.30:80",
			[]string{"=> forwarded to 10.0.0.2:9999 by veth1, which refused it with a TCP reset"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { tellsOf(t, w, w.Client, known, tt.network, tt.dest, tt.want...) })
	}
}
