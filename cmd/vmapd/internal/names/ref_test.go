package names

import (
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

const wantEither = wantDest + "; got "

// describe returns all parts of a reference.
func describe(r Ref) string {
	text := string(r.Kind) + " " + r.Namespace + "|" + r.Name + "|" + r.Port + "|" + r.Protocol
	if r.Addr.IsValid() {
		text += " " + r.Addr.String()
	}
	return text
}

func TestParseDestination(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"10.96.0.10:80/tcp", "address ||80|tcp 10.96.0.10"},
		{"10.96.0.10:80", "address ||80| 10.96.0.10"},
		{"10.96.0.10:53/UDP", "address ||53|udp 10.96.0.10"},
		{"[fd00::1]:80/sctp", "address ||80|sctp fd00::1"},
		{"[::ffff:10.96.0.10]:80", "address ||80| 10.96.0.10"},
		{"svc/web", "service |web||"},
		{"svc/web:http", "service |web|http|"},
		{"svc/web.shop:http", "service shop|web|http|"},
		{"svc/web.shop.svc:http", "service shop|web|http|"},
		{"shop/web:http", "service shop|web|http|"},
		{"shop/web.shop:http", wantEither + `"shop/web.shop:http"`},
		{"web.shop.example.org:80", wantEither + `"web.shop.example.org:80"`},
		{"999.1.1.1:80", wantEither + `"999.1.1.1:80"`},
		{"service/shop/web:53/udp", "service shop|web|53|udp"},
		{"web.shop.svc.cluster.local:http", "service shop|web|http|"},
		{"web:80/tcp", "service |web|80|tcp"},
		{"deploy/web:8080", "service deploy|web|8080|"},
		{"node/n1.example.com:30080", "node |n1.example.com|30080|"},
		{"node:30080", "node process ||30080|"},
		{"pod/web-1", `destination "pod/web-1": want the number of a port, as in pod/web-1:8080; only Services' ports have names`},
		{"pod/web-1:http", `destination "pod/web-1:http": want the number of a port, as in pod/web-1:http:8080; only Services' ports have names`},
		{"10.96.0.10", wantEither + `"10.96.0.10"`},
		{"fd00::1:80", wantEither + `"fd00::1:80"`},
		{"10.96.0.10:http", wantEither + `"10.96.0.10:http"`},
		{"[fe80::1%eth0]:80", wantEither + `"[fe80::1%eth0]:80"`},
		{"configmap/shop/web:80", wantEither + `"configmap/shop/web:80"`},
		{"svc/:80", wantEither + `"svc/:80"`},
		{"svc/web space:80", wantEither + `"svc/web space:80"`},
		{"10.96.0.10:80/icmp", `destination "10.96.0.10:80/icmp": unknown protocol "icmp" (tcp, udp, sctp)`},
		{"10.96.0.10:80/", `destination "10.96.0.10:80/": unknown protocol "" (tcp, udp, sctp)`},
		{"10.96.0.10:0", `destination "10.96.0.10:0": port 0 is not between 1 and 65535`},
		{"svc/web:70000", `destination "svc/web:70000": port 70000 is not between 1 and 65535`},
		{"0.0.0.0:80", `0.0.0.0 cannot be the destination of a connection`},
	} {
		r, err := ParseDestination(tt.text)
		got := describe(r)
		if err != nil {
			got = err.Error()
		}
		testaid.Equal(t, tt.text, tt.want, got)
	}
}

func TestParseSource(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"10.0.0.2", "address ||| 10.0.0.2"},
		{"::ffff:10.0.0.2", "address ||| 10.0.0.2"},
		{"node", "node process |||"},
		{"pod/shop/web-1", "pod shop|web-1||"},
		{"PO/db-0", "pod |db-0||"},
		{"web-1", wantSource + `; got "web-1"`},
		{"svc/one", "svc/one: a Service does not open connections: name one of its pods, as in pod/NAME"},
		{"999.1.1.1", wantSource + `; got "999.1.1.1"`},
		{"a/b/c/d", wantSource + `; got "a/b/c/d"`},
		{"", wantSource + `; got ""`},
		{"fe80::1%eth0", "fe80::1%eth0 cannot be the source of a connection"},
		{"::", ":: cannot be the source of a connection"},
	} {
		r, err := ParseSource(tt.text)
		got := describe(r)
		if err != nil {
			got = err.Error()
		}
		testaid.Equal(t, tt.text, tt.want, got)
	}
}
