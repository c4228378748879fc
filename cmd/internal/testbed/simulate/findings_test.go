package simulate

import (
	"io"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest"
)

// findings are short lives that failed once, and the lesson of each.
var findings = []struct {
	name string
	life Life
}{
	// The checks' own fault, and a limit of the daemon. Each of three lists of a table in a row lacked something, and said so: the
	// third one is believed, because other tables may change all the time. While the other family is tried again, this one is
	// not compared, and is wrong until the comparison of each hour.
	{"a table is read with holes three times", Life{
		Node{Config: modeltest.Configs[1], Before616: true, PieceSize: 5},
		[]Step{
			{Change, 0xb7a36610134c279f},
			{Change, 0xa53a81d9c4686e1f},
			{Change, 0x484142ea82608642},
			{Settle, 0x9c6b9c6e9103c0e3},
			{Storm, 0x59d6aeaf35fb1c56},
			{Change, 0xfc988a8ce2ec973c},
			{Deliver, 0x9eff3dfe89d462ba},
			{Pass, 0x56b7d65b69bd8088},
			{Settle, 0},
		},
	}},
	// A limit that is none any more: a client of UDP came back to an endpoint that was gone, until the purge, which failed here.
	{"a client of UDP comes back", Life{
		Node{Config: modeltest.Configs[2], Before69: true},
		[]Step{
			{Meddle, 0x0f1c1920ec45ac75},
			{Settle, 0x05ffb35f373c7157},
			{Change, 0x9e4a18a718bd32ff},
			{Change, 0xfe0d67f1bbeeaec6},
			{Change, 0xfa496ac803ced0e2},
			{Change, 0x04c6b57d44cfe573},
			{Settle, 0xb8b46d6d9ba83e4d},
			{Settle, 0xa8122adb6937cca5},
			{Change, 0x6cc587d3ea1f03fa},
			{Deliver, 0xaf7cab9aa1dcfd8c},
			{Deliver, 0x2d2d932b4f8d124a},
			{Packets, 0x0e2ab502e1df0610},
			{Settle, 0},
		},
	}},
	// The daemon's fault, mended: in a batch in pieces, a Service went before its external IP became the cluster IP of a
	// Service without ports, and packets to it passed untouched in between.
	{"an external IP becomes a cluster IP without ports", Life{
		Node{Config: modeltest.Configs[4], Before69: true, Before63: true, PieceSize: 1},
		[]Step{
			{Change, 0x51b805645dd5518a},
			{Settle, 0x90912f2773fea089},
			{Change, 0xacc8df44e3ef6c5d},
			{Change, 0x85a37ba09ec2341a},
			{Deliver, 0x66a1f5c2500138fc},
			{Change, 0xb8d63c393445bc7a},
			{Deliver, 0xd2df34ce70a38663},
			{Settle, 0},
		},
	}},
	// A limit of the daemon. The purge behind a batch fails, and the daemon ends before the retry. Ten seconds later the endpoint that
	// is gone is not watched any more, and the client goes there until another daemon has all objects.
	{"a daemon ends before the purge", Life{
		Node{Config: modeltest.Configs[1], PieceSize: 20},
		[]Step{
			{Change, 0xc0304900fdbb0d4f},
			{Change, 0xdd99b264130e8482},
			{Change, 0xfe7e49565b38cc49},
			{Change, 0xf60db87e3625f64c},
			{Change, 0xbc6f0cae320ee8ee},
			{Change, 0xbfe93e66642125cc},
			{Change, 0xba58bdeebc82f97e},
			{Change, 0x3a1c83e79b5eaeaa},
			{Change, 0xebd7e49d59ad41e3},
			{Change, 0xc745c17c80ca9a8b},
			{Change, 0x18344817c9be3203},
			{Change, 0xbd60b889c42c1f0a},
			{Change, 0x95d79c04ddb24f86},
			{Change, 0xb3308a18602874d6},
			{Change, 0xedb0bd30605a05b5},
			{Change, 0x8d2fa6de6cb6277c},
			{Settle, 0x4de253a303da5113},
			{Change, 0x70c89d12b037456a},
			{Deliver, 0x897c0ccded132123},
			{Restart, 0x55f96e9bb53c05cf},
			{Pass, 0x5d49db59382708b4},
			{Packets, 0x7e0c31bc00b92490},
			{Settle, 0},
		},
	}},
	// The daemon's fault, mended: a client that a daemon left with an endpoint that was gone was forgotten only behind the first
	// batch of the next one. Now its own packet is dropped, and deletes it.
	{"a daemon dies before the purge", Life{
		Node{Config: modeltest.Configs[5], Before616: true, PieceSize: 20},
		[]Step{
			{Change, 0xb02ceb526512bda0},
			{Meddle, 0x33a68df0bd49c1b8},
			{Change, 0xa16d7fe8aea03e43},
			{Change, 0xbfc56a66e851af3a},
			{Change, 0x96cd4646bc12bf03},
			{Change, 0x81cbe3f0f0d14907},
			{Change, 0xbb98a302e6310a24},
			{Change, 0xe2b2403ee8e2a24c},
			{Change, 0xcec8bc78c2282214},
			{Change, 0xd6e4de7c67a72248},
			{Change, 0xc667e428557c3e02},
			{Change, 0x8b5b703c5a0549ac},
			{Settle, 0xc8251af9d24ea7e2},
			{Meddle, 0x10b1bbba22aa4bd9},
			{Change, 0xc04066ef74c583ba},
			{Kill, 0x9411cac5e6ff2206},
			{Packets, 0xd4cf76d127ddacbb},
			{Change, 0xc597558f9d1796ab},
			{Deliver, 0xcefe2bad84ab023d},
			{Change, 0x7472c4d34da71ba3},
			{Change, 0xe3f4a383270c2738},
			{Deliver, 0xfbf0520ba6d7556d},
			{Pass, 0x57c1d37245a22b5a},
			{Change, 0xaa8e1a188bc0029f},
			{Settle, 0},
		},
	}},
	// The checks' own fault: where a change ended masquerading, a batch ended it in its last piece.
	{"masquerading ends last", Life{
		Node{Config: modeltest.Configs[4], Before69: true, Before616: true},
		[]Step{
			{Change, 0x9d4870df63ee5734},
			{Change, 0xc6c9859c934a2ef8},
			{Change, 0xafb8f8940b537e8b},
			{Settle, 0xc688ad6f72a9cf98},
			{Change, 0x2a8b7fb0ec20612e},
			{Change, 0x4369d921eb9de3c3},
			{Deliver, 0x5f3141c88dea8c12},
			{Packets, 0x4210fd718d7c0d4a},
			{Change, 0xf1310dd6b5db4d88},
			{Settle, 0},
		},
	}},
	// The daemon's fault, mended: the endpoints of a Service with round-robin are in maps of its own, where a daemon that started did not look
	// for flows of frontends that were gone (Destinations in nft/destinations.go).
	{"flows to a Service with round-robin that is gone", Life{
		Node{Config: modeltest.Configs[3]},
		[]Step{
			{Change, 0x1d1be04358385c63},
			{Change, 0x5fb4d776e71323fb},
			{Change, 0x79b5855546e26d09},
			{Settle, 0xe3d5a7c96fd35b39},
			{Restart, 0x5c2dce938c313ad0},
			{Packets, 0xfb8ca87567c2cfed},
			{Change, 0x9d0a8b738fee08cd},
			{Settle, 0},
		},
	}},
	// The batch's fault, mended: an external IP of which only connections from the node are masqueraded becomes a cluster IP. The verdict of
	// the external IP stayed until the last piece, and kept packets from the rules for cluster IPs.
	{"an external IP becomes a cluster IP", Life{
		Node{Config: modeltest.Configs[4], PieceSize: 60},
		[]Step{
			{Change, 0x77f5bbe0e7a481ba},
			{Change, 0x38bb3f51c9d6b832},
			{Change, 0x142284d5ccaf2ee6},
			{Settle, 0x5b89deb9d6c1a728},
			{Packets, 0x72e3f6b448cf8a4b},
			{Change, 0xd9e2622499d6812f},
			{Settle, 0},
		},
	}},
	// The checks' own fault: a client of UDP that a packet noted between the reading of its map and the batch came back.
	{"a client of UDP is noted just before the batch", Life{
		Node{Config: modeltest.Configs[5], Before69: true, Before616: true, PieceSize: 5},
		[]Step{
			{Change, 0xabcf45591be5649a},
			{Settle, 0xe8fd6f5705904a6c},
			{Change, 0x7b41f4a2524dade9},
			{Change, 0x2e0219729c01d5bf},
			{Deliver, 0x0cbca1d421bfee84},
			{Change, 0x83bb04f3ef7fbd3f},
			{Change, 0xa972084a1cafc4cf},
			{Change, 0x25a333a6d1ff0dbf},
			{Deliver, 0x06d0b1263035a8fd},
			{Packets, 0x5a1c366c35f8fd0a},
			{Fault, 0x9261be06137d6e49},
			{Deliver, 0x08a45f32ee3b57e2},
			{Pass, 0x070ca439d82b2f7b},
			{Change, 0x49387a4b83499e5b},
			{Deliver, 0x542f2e9f659a51ce},
			{Settle, 0x0},
		},
	}},
	// The daemon's fault, mended: a Service came with a round that failed, was in force in part, and was gone in the next round. No pass
	// looked for the flows that it had in between (failed in sync/conntrack/family.go).
	{"a Service of a round that failed", Life{
		Node{Config: modeltest.Configs[2], Before616: true, PieceSize: 5},
		[]Step{
			{Change, 0xa04f6eadd53f8738},
			{Change, 0xf76797a8250707fe},
			{Change, 0x4aa739d4940baff9},
			{Settle, 0x89d3dc855156be27},
			{Change, 0x9b03f838334bf256},
			{Fault, 0x010e5f9c3a622142},
			{Deliver, 0x2b1799681a13d252},
			{Change, 0xa40f305030a73e7d},
			{Settle, 0x0},
		},
	}},
	// The checks' own fault: a packet from elsewhere had an address that became the node's in the middle of a batch.
	{"an address becomes the node's", Life{
		Node{Config: modeltest.Configs[1], PieceSize: 1},
		[]Step{
			{Change, 0x1f82f8103c634f75},
			{Change, 0x38fd14698e55db3a},
			{Change, 0x85aa7aee16a1777f},
			{Change, 0x0f633b34ef9b134e},
			{Change, 0x044e8fb698e34e65},
			{Change, 0xbb55ae5a80eed2a7},
			{Change, 0x91d38a5bc486feb0},
			{Settle, 0xf5c6a1288269bd86},
			{Change, 0x9321ac3af0807519},
			{Change, 0x9dfca46ee40b0bfd},
			{Deliver, 0x3c239d2f6949a96f},
			{Packets, 0xc43502bb041619fc},
			{Change, 0x97a1281b60909f75},
			{Change, 0x51cbc8fe01999624},
			{Deliver, 0x5966ac9df3582813},
			{Settle, 0x0},
		},
	}},
	// The checks' own fault: an address that was masqueraded went to a Service that is not, and was masqueraded still in the middle of the
	// batch. The endpoint of before was on the node, where masquerading has no effect, so that the check took it for none.
	{"an address of an endpoint on the node", Life{
		Node{Config: modeltest.Configs[2], Before63: true, PieceSize: 5},
		[]Step{
			{Change, 0x47087e2621771469},
			{Change, 0xd6c28d085b23a5e2},
			{Change, 0xf9498fd4e0136c2d},
			{Change, 0x136ddffb05b3b0b1},
			{Change, 0x30ab1fc96fce819c},
			{Change, 0xa8bcba6e1a0a6ab2},
			{Settle, 0x8fb1d792e3d950ad},
			{Packets, 0xca5e4c7cf63bc834},
			{Change, 0x537f3b784c1bd828},
			{Change, 0x3f18b1631acd5a6a},
			{Change, 0x40ab07acb671eb7e},
			{Change, 0x89a9cb049bed2ff6},
			{Settle, 0x0},
		},
	}},
	// The checks' own fault. While a Service is refused, each batch would take its old endpoints away, and adds them to removed-endpoints
	// once more. The table lacks nothing of the others for that (seed 600562).
	{"endpoints of a refused Service", Life{
		Node{Config: modeltest.Configs[4], PieceSize: 20},
		[]Step{
			{Settle, 0xf1ed0f291e0dd3ab},
			{Change, 0xa351d187c84f06da},
			{Deliver, 0x32ab7b50c0f02631},
			{Change, 0xbfc39b2f66c3a3a5},
			{Deliver, 0x33e081d0b7c99382},
			{Refuse, 0xf117a1a125e1b0c6},
			{Change, 0x57763ccc6d188f58},
			{Deliver, 0xd99f133a416b79a7},
			{Settle, 0},
		},
	}},
	// A defect. A packet on its way noted a client again with an endpoint that had gone, the purge failed, and the client's next flow
	// began behind the pass over the flows. It stayed when the client was forgotten (seed 602171).
	{"a flow of a client that is forgotten late", Life{
		Node{Config: modeltest.Configs[6]},
		[]Step{
			{Change, 0xe0f0c080b45cf25},
			{Change, 0x7d332c1a66fd8bda},
			{Change, 0xc5834b18aca77993},
			{Change, 0x7f380101f0d2cdfe},
			{Change, 0xbf0cee325fc6349d},
			{Change, 0xc7cbf91de1a87bee},
			{Change, 0x79f2d9e3c0cebb50},
			{Change, 0x4144c19f3313fc76},
			{Change, 0x1a84d2dee5173f22},
			{Change, 0xaa709c2fefa50c18},
			{Change, 0x69bbd9e5cef8db84},
			{Change, 0xfc1f6f0b7e2afb73},
			{Change, 0xcb72dfe1410af31f},
			{Change, 0x1fe4231aed62279a},
			{Change, 0x923a94703f31959e},
			{Change, 0x56b46d01464ec3af},
			{Change, 0xb179d1eb0d077bfc},
			{Settle, 0x1807ca6064e1a715},
			{Change, 0x1fd3bcab2ebc1f31},
			{Change, 0x531b2761d2d7f819},
			{Change, 0xf4f609c956aa4265},
			{Change, 0x752cf55f34da52d7},
			{Settle, 0x884ba7cae4a4cd0c},
			{Change, 0xf57a7691d44a0d0f},
			{Deliver, 0x85834bd8b6e628cb},
			{Packets, 0x4a9d502b791c8809},
			{Settle, 0x0},
		},
	}},
	// A defect. A daemon died before it had purged the clients of an endpoint that was gone. One of these began a flow before the next daemon
	// took away the frontend, too, and this ended flows of that to the endpoints alone that the table still had for it (seed 703634).
	{"a frontend goes, and its clients are remembered with an endpoint that is gone", Life{
		Node{Config: modeltest.Configs[1], Before616: true, PieceSize: 1},
		[]Step{
			{Change, 0x9f95a7b81d8bda80},
			{Change, 0xa7703f5b2466de4f},
			{Change, 0x59370782275c7557},
			{Settle, 0x1cf50659db46b83f},
			{Change, 0xbdfecca01ea855a0},
			{Change, 0x98041c54d483d620},
			{Change, 0xc78a189f4ba68809},
			{Change, 0xd31647a66dddaf4c},
			{Change, 0x52969c7babd63bd8},
			{Deliver, 0x5b12d857daf24d8f},
			{Deliver, 0x3683c0b9bb3ffb76},
			{Kill, 0x2f61f065957cc210},
			{Deliver, 0x26179b2c94c41e83},
			{Settle, 0x0},
		},
	}},
	// A defect. A daemon died in the middle of a batch. The next one found a frontend of which it knew nothing, and deleted that in the last piece:
	// meanwhile it had the new endpoints of the Service whose turns it used (seed 803281).
	{"a frontend that only the table has uses the turns of a Service", Life{
		Node{Config: modeltest.Configs[3], Before69: true, Before616: true, PieceSize: 5},
		[]Step{
			{Change, 0xc9dcc540b2e7b4d0},
			{Change, 0x504c85cbd7f152cd},
			{Change, 0xa7e40fae6ebd732c},
			{Change, 0x6f740388951cb7b1},
			{Restart, 0xf6e3b7051e647ebb},
			{Deliver, 0xdb14c002b766b35},
			{Deliver, 0x855d179625ea253d},
			{Change, 0xea17b831b15f0522},
			{Deliver, 0x73ecb9082c4bb42f},
			{Deliver, 0x890093be2374193e},
			{Kill, 0xf3bfd4f2bf777bed},
			{Deliver, 0x42ae387aa1c746bc},
			{Change, 0x306f8a9dae37a184},
			{Change, 0x3fe3092677323a6c},
			{Change, 0x2cd0b45284241546},
			{Settle, 0x0},
		},
	}},
	// A defect. A Service was refused from the start of a daemon, so that it kept the rules of the daemon before, and its flows. A client of
	// it was forgotten late, and then its flows were looked at, by the frontends that it did not have (seed 821130).
	{"a client of a refused Service is forgotten late", Life{
		Node{Config: modeltest.Configs[2], Before616: true},
		[]Step{
			{Change, 0x763d5bdf686c500c},
			{Change, 0x92953317b2962315},
			{Change, 0x17e4a6143d65eddd},
			{Change, 0xebf49eb00c93f83d},
			{Change, 0xc4d12e65fd57828e},
			{Settle, 0xf9ed0fbc75308fc1},
			{Kill, 0xc999f1a74db98a24},
			{Storm, 0xbd7097119a27cb65},
			{Change, 0x46587af7241cb471},
			{Deliver, 0x5164080cf786f71f},
			{Pass, 0x19d197ed27eeba1a},
			{Refuse, 0x55b05a7f68cd43aa},
			{Start, 0x5b29a25b7749f62d},
			{Deliver, 0x88df7d6f174babb6},
			{Change, 0x8f751b21e08cf61a},
			{Deliver, 0xb5efe903dcf6c0ba},
			{Change, 0xd6ba6feb5b740d40},
			{Deliver, 0x1b64d9e03368b969},
			{Deliver, 0x3ce35f8615039dbc},
			{Pass, 0xfbc682256e6712ab},
			{Settle, 0x0},
		},
	}},
}

func TestFindings(t *testing.T) {
	for _, f := range findings {
		t.Run(f.name, func(t *testing.T) {
			if r := play(t, f.life, io.Discard); r.Err != nil {
				t.Errorf("after step %d: %v", r.Steps, r.Err)
				report(t, f.life)
			}
		})
	}
}
