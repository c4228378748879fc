package image

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// VmapdImage is the image that deploy/Dockerfile describes, with another reference: a cluster may
// have several versions.
func VmapdImage(name, reference, program string) Image {
	return Image{
		Name: name, Tags: []string{reference},
		Programs: map[string]string{"/usr/local/bin/vmapd": program},
		Links:    map[string]string{"/usr/local/bin/kube-proxy": "vmapd"},
		Packages: []string{"dash", "iptables", "ipset", "kmod"}, BusyBox: true,
		Entrypoint: []string{"/usr/local/bin/vmapd"},
	}
}

// Set has the images of a cluster and of its tests. programs is the folder with those of a
// Kubernetes release and the tests' own programs, built the one with vmapd, pause and podserver. listed is the
// output of "e2e.test --list-images"; without it, images that only the tests use are left out.
func Set(programs, built, listed string) []Image {
	in := func(name string) string { return filepath.Join(programs, name) }
	names := func(parts ...string) []string { return references(listed, parts...) }
	ruleTools := []string{"dash", "iptables", "ipset", "nftables", "conntrack", "kmod"}
	all := []Image{
		VmapdImage("vmapd", kube.VmapdImage, filepath.Join(built, "vmapd")),
		{
			Name: "pause", Tags: append(names("/pause"), kube.PauseImage),
			Programs:   map[string]string{"/pause": filepath.Join(built, "pause")},
			Entrypoint: []string{"/pause"},
		},
		{
			Name: "podserver", Tags: []string{kube.PodserverImage},
			Programs:   map[string]string{"/podserver": filepath.Join(built, "podserver")},
			Entrypoint: []string{"/podserver"},
		},
		{
			Name: "coredns", Tags: []string{kube.CoreDNSImage},
			Programs:   map[string]string{"/coredns": in("coredns")},
			Entrypoint: []string{"/coredns"},
		},
		{
			Name: "kube-proxy", Tags: []string{kube.KubeProxyImage},
			Programs: map[string]string{"/usr/local/bin/kube-proxy": in("kube-proxy")},
			Packages: ruleTools, BusyBox: true,
			Entrypoint: []string{"/usr/local/bin/kube-proxy"},
		},
		{
			Name: "agnhost", Tags: append(names("e2e-test-images/agnhost", "/glibc-dns-testing"), kube.AgnhostImage),
			Programs: map[string]string{"/agnhost": in("agnhost"), "/coredns": in("coredns")},
			Links:    map[string]string{"/usr/bin/nc": "nc.openbsd", "/agnhost-2": "agnhost"},
			// libc-bin has getent. The wget of Debian's busybox crashes with -T; the other one would try
			// 20 times, for four minutes, where tests expect no answer.
			Texts: map[string]string{"/etc/wgetrc": "tries = 1\n"},
			Packages: []string{
				"bash", "bind9-dnsutils", "curl", "dash", "iproute2", "libc-bin", "netcat-openbsd", "wget",
			},
			BusyBox:    true,
			KeyPair:    "/localhost", // of "agnhost porter"
			Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		},
		{Name: "busybox", Tags: names("/busybox"), BusyBox: true, Entrypoint: []string{"/bin/sh"}},
		{
			Name: "distroless-iptables", Tags: names("/distroless-iptables"),
			Packages: ruleTools, BusyBox: true, Entrypoint: []string{"/bin/sh"},
		},
		{
			Name: "regression-issue-74839", Tags: names("/regression-issue-74839"),
			Programs:   map[string]string{"/regression-issue-74839": in("regression-issue-74839")},
			Entrypoint: []string{"/regression-issue-74839"},
		},
	}
	return slices.DeleteFunc(all, func(i Image) bool { return len(i.Tags) == 0 })
}

// references are the listed images of repositories that end with one of some parts.
func references(listed string, parts ...string) []string {
	var found []string
	for ref := range strings.Lines(listed) {
		ref = strings.TrimSpace(ref)
		repository := ref[:max(0, strings.LastIndex(ref, ":"))]
		if slices.ContainsFunc(parts, func(p string) bool { return strings.HasSuffix(repository, p) }) {
			found = append(found, ref)
		}
	}
	return found
}
