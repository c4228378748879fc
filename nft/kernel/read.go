package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// tablePasses bounds how often a table is read again because rules changed meanwhile: those of
// another table, mostly. A list may lack something then.
const tablePasses = 3

// readTable returns the contents of our table of a family, or nil if there is none.
func (c *conn) readTable(f model.Family) (t *nft.Table, err error) {
	for range tablePasses {
		c.interrupted = false
		if t, err = c.readTableOnce(f); err != nil || !c.interrupted {
			return t, err
		}
	}
	return nil, fmt.Errorf("read table %s: rules changed meanwhile, each time: %w", nft.TableName, unix.EINTR)
}

func (c *conn) readTableOnce(f model.Family) (*nft.Table, error) {
	flags, err := c.table(f)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", nft.TableName, err)
	}
	t := &nft.Table{
		Family: f, Dormant: flags&unix.NFT_TABLE_F_DORMANT != 0,
		Elements: map[string]nft.Elements{}, Slots: map[string]*nft.Slots{},
	}
	for _, objects := range [...]struct {
		name string
		read func(*nft.Table) error
	}{
		{"sets", c.readSets},
		{"timeout policies", c.readTimeouts},
		{"flowtables", c.readFlowtables},
		{"chains", c.readChains},
		{"rules", c.readRules},
	} {
		if err := objects.read(t); err != nil {
			return nil, fmt.Errorf("read %s: %w", objects.name, err)
		}
	}
	return t, nil
}

// readSets reads the declarations of the sets, and their elements: of maps of endpoints last, because the frontends
// have their slots. Packets fill a dynamic one, see purge.
func (c *conn) readSets(t *nft.Table) error {
	counts, err := c.readDeclarations(t)
	if err != nil {
		return err
	}
	for _, inSlots := range [...]bool{false, true} {
		for _, s := range t.Sets {
			count := counts[s.Name]
			if s.Dynamic || s.HasSlots() != inSlots {
				continue
			}
			if count > manyElements && inSlots && c.askSlots(t, s, count) {
				continue
			}
			if err := c.listElements(t, s, count); err != nil {
				return fmt.Errorf("read elements of %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// readDeclarations returns how many elements each set has; 0: the kernel does not say it.
func (c *conn) readDeclarations(t *nft.Table) (counts map[string]int, err error) {
	counts = map[string]int{}
	err = c.list(unix.NFT_MSG_GETSET, t.Family, "", func(set []byte) error {
		s := readSet(t.Family, set)
		t.Sets = append(t.Sets, s)
		counts[s.Name] = int(nfnl.Uint32(nfnl.First(set, setCount)))
		return nil
	})
	return counts, err
}

func readSet(f model.Family, b []byte) nft.Set {
	flags, data := nfnl.Uint32(nfnl.First(b, unix.NFTA_SET_FLAGS)), nfnl.Uint32(nfnl.First(b, unix.NFTA_SET_DATA_TYPE))
	isMap := flags&unix.NFT_SET_MAP != 0
	s := nft.Set{
		Name:     nfnl.String(b, unix.NFTA_SET_NAME),
		Interval: flags&unix.NFT_SET_INTERVAL != 0, Dynamic: flags&unix.NFT_SET_EVAL != 0,
		Verdicts: isMap && data == unix.NFT_DATA_VERDICT,
		Comment:  string(readComment(nfnl.First(b, unix.NFTA_SET_USERDATA), userdata.NFTNL_UDATA_SET_COMMENT)),
	}
	if isMap && !s.Verdicts {
		s.Data = readTypes(f, data)
	}
	s.Key = readTypes(f, nfnl.Uint32(nfnl.First(b, unix.NFTA_SET_KEY_TYPE)))
	return s
}

// readTypes translates the types that we use; nil: the set is not ours.
func readTypes(f model.Family, n uint32) (list []nft.Type) {
	ours := map[uint32]nft.Type{nftables.TypeInteger.GetNFTMagic(): nft.Slot} // by nft, or by an earlier vmapd
	for t, number := range datatypes(f) {
		ours[number] = t
	}
	for ; n != 0; n >>= nftables.SetConcatTypeBits {
		t, ok := ours[n&nftables.SetConcatTypeMask]
		if !ok {
			return nil
		}
		list = append(list, t)
	}
	slices.Reverse(list)
	return list
}

// readTimeouts reads the names of the timeout policies. Other objects are not ours.
func (c *conn) readTimeouts(t *nft.Table) error {
	return c.list(unix.NFT_MSG_GETOBJ, t.Family, "", func(b []byte) error {
		if nfnl.Uint32(nfnl.First(b, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_CT_TIMEOUT {
			t.Timeouts = append(t.Timeouts, nft.Timeout{Name: nfnl.String(b, unix.NFTA_OBJ_NAME)})
		}
		return nil
	})
}

func (c *conn) readChains(t *nft.Table) error {
	return c.list(unix.NFT_MSG_GETCHAIN, t.Family, "", func(chain []byte) error {
		made := nft.Chain{
			Name:   nfnl.String(chain, unix.NFTA_CHAIN_NAME),
			Filter: nfnl.String(chain, unix.NFTA_CHAIN_TYPE) == "filter",
		}
		if hook := nfnl.First(chain, unix.NFTA_CHAIN_HOOK); hook != nil {
			made.Hook = readHook(nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_HOOKNUM)))
			made.Prio = int32(nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_PRIORITY)))
			made.Drop = nfnl.Uint32(nfnl.First(chain, unix.NFTA_CHAIN_POLICY)) != policyAccept
		}
		t.Chains = append(t.Chains, made)
		return nil
	})
}

func readHook(number uint32) nft.Hook {
	const first = int(nft.NoHook) + 1
	return nft.Hook(slices.Index(hookNumbers[first:], number) + first)
}

func (c *conn) readRules(t *nft.Table) error {
	chains := map[string]*nft.Chain{}
	for i := range t.Chains {
		chains[t.Chains[i].Name] = &t.Chains[i]
	}
	return c.list(unix.NFT_MSG_GETRULE, t.Family, "", func(b []byte) error {
		if chain := chains[nfnl.String(b, unix.NFTA_RULE_CHAIN)]; chain != nil { // else it came meanwhile
			hash, _ := nfnl.Userdata(nfnl.First(b, unix.NFTA_RULE_USERDATA), ruleHashUD)
			chain.Rules = append(chain.Rules, nft.Rule{nft.ReadRule{Hash: nfnl.Uint64(hash)}})
		}
		return nil
	})
}

// google/nftables makes a value of each element and of each part of it. For a quarter of a
// million of them that is ten times the memory that they take here.

// listElements reads all elements of a set, of which there should be count; 0: the kernel does not say it. While the
// kernel makes a larger table of a set, it leaves some out or names them twice (nft_rhash_walk): it is listed again.
func (c *conn) listElements(t *nft.Table, s nft.Set, count int) error {
	const passes = 5
	for range passes {
		r := newElementReader(t, s)
		if err := c.list(unix.NFT_MSG_GETSETELEM, t.Family, s.Name, r.add); err != nil {
			return err
		}
		r.end()
		if count == 0 || s.Interval || t.Len(s.Name) == count { // of intervals, both ends count
			break
		}
	}
	return nil
}

const (
	// manyElements is how many elements a map of endpoints may have to be listed. For each piece of a list, the kernel
	// walks the map from its beginning: a million take 40 s, and as many questions 3 s.
	manyElements = 120_000
	// slotsPerQuestion keeps the answers, a message each, below the default size of a socket's buffer
	// (net.core.rmem_default), should the larger one be refused.
	slotsPerQuestion = 200
)

// askSlots reads the slots of a map of endpoints that has count: those of each frontend, from the first to the first
// that is empty. It reports whether these are all. Otherwise the caller lists the map.
func (c *conn) askSlots(t *nft.Table, s nft.Set, count int) bool {
	r := newElementReader(t, s)
	m, dispatch := messages{}, nft.ServiceIPs
	if s.Key[0] == nft.Proto {
		dispatch = nft.ServiceNodePorts
	}
	for frontend := range t.Keys(dispatch) {
		for first, asked := 0, 0; asked == first; first += slotsPerQuestion {
			m = messages{family: t.Family, table: nft.TableName, b: m.b[:0]}
			m.slots(&s, frontend, first)
			before := t.Len(s.Name)
			if err := c.exchange(&m, r.add); err != nil && !errors.Is(err, unix.ENOENT) {
				return false
			}
			asked += t.Len(s.Name) - before
		}
	}
	return t.Len(s.Name) == count
}

// slots appends a question for slots of a frontend. The kernel answers up to the first that is empty.
func (m *messages) slots(set *nft.Set, frontend string, first int) {
	message, list := m.beginElements(unix.NFT_MSG_GETSETELEM, 0, set.Name)
	for slot := range slotsPerQuestion {
		key := string(nft.AppendSlot([]byte(frontend), uint32(first+slot)))
		m.close(m.element(unix.NFTA_LIST_ELEM, set, &nft.Element{Key: key}))
	}
	m.close(list)
	m.end(message)
}

type elementReader struct {
	set  nft.Set
	into *nft.Table
	// The kernel has two elements for each range, where it begins and where it ends, in no order that it promises.
	starts, ends []string
}

// newElementReader returns one that collects a set's elements anew.
func newElementReader(t *nft.Table, s nft.Set) *elementReader {
	t.Elements[s.Name] = nft.Elements{}
	if delete(t.Slots, s.Name); s.HasSlots() {
		t.Slots[s.Name] = nft.NewSlots(t.Family, s)
	}
	return &elementReader{set: s, into: t}
}

func (r *elementReader) add(message []byte) error {
	for element := range nfnl.Elements(message) {
		r.element(element)
	}
	return nil
}

func (r *elementReader) element(b []byte) {
	text := func(attr uint16) string { return string(nfnl.Value(b, attr)) }
	e := nft.Element{Key: text(unix.NFTA_SET_ELEM_KEY)}
	if r.set.Interval {
		e.End = text(nftables.NFTA_SET_ELEM_KEY_END)
	}
	switch isRange := r.set.Interval && len(r.set.Key) == 1; {
	case isRange && nfnl.Uint32(nfnl.First(b, unix.NFTA_SET_ELEM_FLAGS))&unix.NFT_SET_ELEM_INTERVAL_END != 0:
		r.ends = append(r.ends, e.Key)
		return
	case isRange:
		r.starts = append(r.starts, e.Key)
		return
	case r.set.Verdicts:
		e.Verdict = readVerdict(nfnl.First(nfnl.First(b, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT))
	default:
		e.Data = text(unix.NFTA_SET_ELEM_DATA)
	}
	user := nfnl.First(b, unix.NFTA_SET_ELEM_USERDATA)
	e.Comment = string(readComment(user, userdata.NFTNL_UDATA_SET_ELEM_COMMENT))
	r.into.Add(r.set.Name, e)
}

// end joins the beginnings and ends of ranges. Without an end, a range goes on to the last address there is.
func (r *elementReader) end() {
	slices.Sort(r.ends)
	for _, start := range r.starts {
		e := nft.Element{Key: start}
		i, found := slices.BinarySearch(r.ends, start)
		if found {
			i++
		}
		if i < len(r.ends) {
			e.End = r.ends[i]
		}
		r.into.Add(r.set.Name, e)
	}
}

func readComment(user []byte, kind userdata.Type) []byte {
	comment, _ := nfnl.Userdata(user, byte(kind))
	return nfnl.Text(comment)
}

// readVerdict reads the contents of NFTA_DATA_VERDICT. A verdict that we would not write becomes NoVerdict.
func readVerdict(b []byte) nft.Verdict {
	code := expr.VerdictKind(int32(nfnl.Uint32(nfnl.First(b, unix.NFTA_VERDICT_CODE))))
	kind := nft.VerdictKind(max(0, slices.Index(verdictKinds[:], code)))
	return nft.Verdict{Kind: kind, Chain: nfnl.String(b, unix.NFTA_VERDICT_CHAIN)}
}
