package host

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// The program ipset changes and reads the backend's ipsets: vishvananda/netlink does not support the
// prefix of the second network of hash:net,net, and one run of the program takes any number of
// changes. Sets are listed and destroyed without it, since leftovers are removed where it is missing.

// ipset runs the program with a text on its standard input.
func ipset(ctx context.Context, text string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, "ipset", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ipset %s: %w: %s", strings.Join(args, " "), err, firstLines(stderr.String()))
	}
	return stdout.String(), nil
}

// restoreSets runs ipset restore. Existing or missing objects are no error.
func restoreSets(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	_, err := ipset(ctx, text, "restore", "-exist")
	return err
}

// probePrefix is the beginning of the names of sets that exist for a moment only.
const probePrefix = "VMAPD-PROBE"

// probeSets creates an empty set of each type that the backend uses, to find out whether the
// kernel has the type. Other probes can use the sets until they are removed.
func probeSets() (remove func() error, err error) {
	ctx := context.Background()
	if _, err := exec.LookPath("ipset"); err != nil {
		return nil, err
	}
	var create, destroy strings.Builder
	for _, f := range model.Families {
		for _, name := range ipvs.SetNames {
			probe := probePrefix + strings.TrimPrefix(name.In(f), "VMAPD")
			_, declaration, _ := strings.Cut(name.Declaration(f), " ")
			fmt.Fprintf(&create, "create %s %s\n", probe, declaration)
			fmt.Fprintf(&destroy, "destroy %s\n", probe)
		}
	}
	if err := restoreSets(ctx, create.String()); err != nil {
		_ = removeSets(func(name string) bool { return strings.HasPrefix(name, probePrefix) }) // those that could be created
		return nil, err
	}
	return func() error { return restoreSets(ctx, destroy.String()) }, nil
}

// readSets returns our sets of a family.
func readSets(ctx context.Context, f model.Family) (map[ipvs.SetName]map[ipvs.Entry]bool, error) {
	text, err := ipset(ctx, "", "save")
	if err != nil {
		return nil, err
	}
	return parseSets(strings.NewReader(text), f)
}

// parseSets reads the output of ipset save. It skips other programs' sets. If one of ours has another type,
// the program says so when it adds an entry.
func parseSets(r io.Reader, f model.Family) (map[ipvs.SetName]map[ipvs.Entry]bool, error) {
	names := map[string]ipvs.SetName{}
	for _, name := range ipvs.SetNames {
		names[name.In(f)] = name
	}
	sets := map[ipvs.SetName]map[ipvs.Entry]bool{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if len(words) < 3 {
			return nil, fmt.Errorf("ipset save: unknown line %q", in.Text())
		}
		name, ours := names[words[1]]
		if !ours {
			continue
		}
		var err error
		switch words[0] {
		case "create":
			sets[name] = map[ipvs.Entry]bool{}
		case "add":
			var e ipvs.Entry
			switch e, err = parseEntry(name, words[2:]); {
			case err != nil:
			case sets[name] == nil:
				err = errors.New("the set was not created")
			default:
				sets[name][e] = true
			}
		default:
			err = errors.New("neither create nor add")
		}
		if err != nil {
			return nil, fmt.Errorf("ipset save: line %q: %w", in.Text(), err)
		}
	}
	return sets, in.Err()
}

func parseEntry(name ipvs.SetName, words []string) (e ipvs.Entry, err error) {
	parts := strings.Split(words[0], ",")
	if n := 1 + strings.Count(name.Type(), ","); len(parts) != n {
		return e, fmt.Errorf("%d parts, and not %d", len(parts), n)
	}
	if e.Addr, err = netip.ParseAddr(parts[0]); err != nil {
		return e, err
	}
	for i, kind := range strings.Split(strings.TrimPrefix(name.Type(), "hash:"), ",")[1:] {
		part := parts[1+i]
		switch kind {
		case "port":
			e.Protocol, e.Port, err = parsePort(part)
		case "net":
			e.Net, err = parseNet(part)
		}
		if err != nil {
			return e, err
		}
	}
	if len(words) > 1 {
		return e, fmt.Errorf("unknown option %q", words[1])
	}
	return e, nil
}

func parsePort(s string) (model.Protocol, uint16, error) {
	name, number, _ := strings.Cut(s, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return 0, 0, err
	}
	p, err := model.ParseProtocol(strings.ToUpper(name))
	return p, uint16(port), err
}

func parseNet(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	a, err := netip.ParseAddr(s)
	return netip.PrefixFrom(a, a.BitLen()), err
}

// kubeProxySets are the beginnings of the names of kube-proxy's sets, behind KUBE- or KUBE-6-. Others
// have sets with names of that kind, too: kube-router's are KUBE-SRC-… and KUBE-DST-….
var kubeProxySets = []string{
	"LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "LOAD-BALANCER", "NODE-PORT", "HEALTH-CHECK-NODE-PORT", "IPVS-IPS",
}

func isKubeProxySet(name string) bool {
	name, ok := strings.CutPrefix(name, "KUBE-")
	name = strings.TrimPrefix(name, "6-")
	return ok && slices.ContainsFunc(kubeProxySets, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func isOurSet(name string) bool {
	return strings.HasPrefix(name, "VMAPD-") || strings.HasPrefix(name, "VMAPD6-")
}

// removeSets destroys sets, without the program.
func removeSets(theirs func(name string) bool) error {
	names, err := listSets()
	errs := []error{err}
	for _, name := range names {
		if !theirs(name) {
			continue
		}
		if err := destroySet(name); err != nil {
			errs = append(errs, fmt.Errorf("destroy %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// destroySet destroys a set. The kernel ends a rule of nftables some time after its removal, and
// until then the rule's set is in use.
func destroySet(name string) error {
	const pause, attempts = 20 * time.Millisecond, 50
	for i := 0; ; i++ {
		err := netlink.IpsetDestroy(name)
		if !errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)) || i == attempts {
			return err
		}
		time.Sleep(pause)
	}
}

// listSets returns the names of all sets. The library's own request is one for all entries, too.
func listSets() ([]string, error) {
	if _, err := os.Stat("/sys/module/ip_set"); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat("/sys/module"); err == nil {
			return nil, nil // the request would load the module
		}
	}
	const namesOnly = 1 << 1 // IPSET_FLAG_LIST_SETNAME
	req := nl.NewNetlinkRequest(nl.IPSET_CMD_LIST|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, namesOnly)))
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, fmt.Errorf("list ipsets: %w", err)
	}
	var names []string
	for _, a := range answers {
		name, err := setName(a)
		if err != nil {
			return nil, fmt.Errorf("list ipsets: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// setName reads an answer of the kernel's. nl.ParseRouteAttr panics at a last attribute without its padding.
func setName(answer []byte) (name string, err error) {
	attrs, err := mdlayher.NewAttributeDecoder(answer[min(len(answer), nl.SizeofNfgenmsg):])
	if err != nil {
		return "", err
	}
	for attrs.Next() {
		if attrs.Type() == nl.IPSET_ATTR_SETNAME {
			name = unix.ByteSliceToString(attrs.Bytes())
		}
	}
	return name, attrs.Err()
}
