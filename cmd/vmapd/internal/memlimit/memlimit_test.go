package memlimit_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/memlimit"
)

const (
	unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n"
	memory  = "36 30 0:31 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
	others  = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n35 30 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nnonsense\n"
	pod     = "/kubepods.slice/pod1.slice/container"
)

func TestLimits(t *testing.T) {
	limit := func(bytes int64, file string) *memlimit.Limit { return &memlimit.Limit{Bytes: bytes, File: file} }
	for _, tt := range []struct {
		name           string
		groups, mounts string
		files          map[string]string
		want           *memlimit.Limit
	}{
		{
			"version 2, in a container", "0::/\n", others + unified,
			map[string]string{"memory.max": "100663296\n"},
			limit(100663296, "/sys/fs/cgroup/memory.max"),
		},
		{
			"version 2, without a namespace", "0::" + pod + "\n", unified,
			map[string]string{"kubepods.slice/pod1.slice/container/memory.max": "200\n"},
			limit(200, "/sys/fs/cgroup"+pod+"/memory.max"),
		},
		{
			"the pod has the lower limit", "0::" + pod + "\n", unified,
			map[string]string{
				"kubepods.slice/pod1.slice/container/memory.max": "200\n", "kubepods.slice/pod1.slice/memory.max": "150\n",
				"kubepods.slice/memory.max": "max\n",
			},
			limit(150, "/sys/fs/cgroup/kubepods.slice/pod1.slice/memory.max"),
		},
		{
			"a soft limit", "0::/a\n", unified,
			map[string]string{"a/memory.max": "200\n", "a/memory.high": "180\n"},
			limit(180, "/sys/fs/cgroup/a/memory.high"),
		},
		{
			"version 1, with its container mounted", "0::/\n9:name=systemd:/x\n4:cpu,memory:/docker/1\n",
			"36 30 0:31 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n",
			map[string]string{"memory/memory.limit_in_bytes": "300\n"},
			limit(300, "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
		},
		{
			"version 1, nested", "4:memory:/a/b\n0::/\n", others + memory + "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			map[string]string{
				"memory/a/b/memory.limit_in_bytes": "9223372036854771712\n", "memory/a/memory.limit_in_bytes": "400\n",
				"memory/memory.limit_in_bytes": "9223372036854771712\n",
			},
			limit(400, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"),
		},
		{
			"a mount of another group, which is all that can be seen", "4:memory:/docker/1\n", "36 30 0:31 /docker/2 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			map[string]string{"memory/memory.limit_in_bytes": "300\n"},
			limit(300, "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
		},
		{"no limit", "0::/a\n", unified, map[string]string{"a/memory.max": "max\n"}, nil},
		{"garbage", "0\n\n0::/a\n", unified, map[string]string{"a/memory.max": "-1\n", "a/memory.high": "much"}, nil},
		{"no control groups", "", others, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/self/cgroup": {Data: []byte(tt.groups)}, "proc/self/mountinfo": {Data: []byte(tt.mounts)},
			}
			for name, text := range tt.files {
				root["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := memlimit.Read(root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWithoutProc(t *testing.T) {
	if l, err := memlimit.Read(fstest.MapFS{}); l != nil || err == nil {
		t.Errorf("got %v, %v, want an error", l, err)
	}
}

func TestTheRuntimesShare(t *testing.T) {
	const mib = 1 << 20
	for limit, want := range map[int64]int64{20 * mib: 10 * mib, 96 * mib: 72 * mib, 1000 * mib: 850 * mib} {
		if got := (memlimit.Limit{Bytes: limit}).Runtime(); got < want || got > want+mib {
			t.Errorf("of %d the runtime has %d, want %d", limit, got, want)
		}
	}
}
