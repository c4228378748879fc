package nftfake

import (
	"bytes"
	"cmp"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// elements adds or deletes elements.
func (t *transaction) elements(at *table, attrs attributes, kind uint16, header netlink.HeaderFlags) unix.Errno {
	s := at.set(attrs.string(unix.NFTA_SET_ELEM_LIST_SET))
	if s == nil {
		return unix.ENOENT
	}
	if kind != unix.NFT_MSG_NEWSETELEM && !attrs.has(unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
		clear(s.elements)
	}
	for _, e := range list(attrs[unix.NFTA_SET_ELEM_LIST_ELEMENTS]) {
		key, err := s.key(e)
		if err != 0 {
			return err
		}
		was, found := s.elements[key]
		found = found && was.lives(t.now)
		switch {
		case kind == unix.NFT_MSG_NEWSETELEM:
			if err := t.add(at, s, key, e, found, header); err != 0 {
				return err
			}
		case found:
			delete(s.elements, key)
		case kind == unix.NFT_MSG_DELSETELEM:
			return unix.ENOENT
		}
	}
	return 0
}

// key returns by what an element is found. In a set of ranges the end of one may have the key
// of another's start.
func (s *set) key(e attributes) (string, unix.Errno) {
	key, end := e.value(unix.NFTA_SET_ELEM_KEY), e.value(setElemKeyEnd)
	if want := int(s.attrs.uint32(unix.NFTA_SET_KEY_LEN)); len(key) != want || len(end) != 0 && len(end) != want {
		return "", unix.EINVAL
	}
	return string(key) + string(end) + string(rune(e.uint32(unix.NFTA_SET_ELEM_FLAGS))), 0
}

func (t *transaction) add(
	at *table, s *set, key string, e attributes, found bool, header netlink.HeaderFlags,
) unix.Errno {
	isEnd := e.uint32(unix.NFTA_SET_ELEM_FLAGS)&unix.NFT_SET_ELEM_INTERVAL_END != 0
	hasData, isMap := e.has(unix.NFTA_SET_ELEM_DATA), s.flags&unix.NFT_SET_MAP != 0
	if hasData != isMap && !(isMap && isEnd) || e.has(unix.NFTA_SET_ELEM_TIMEOUT) && s.flags&unix.NFT_SET_TIMEOUT == 0 {
		return unix.EINVAL
	}
	made := element{attrs: e}
	data := e[unix.NFTA_SET_ELEM_DATA]
	if s.attrs.uint32(unix.NFTA_SET_DATA_TYPE) == unix.NFT_DATA_VERDICT {
		made.chain = parse(data).nested(unix.NFTA_DATA_VERDICT).string(unix.NFTA_VERDICT_CHAIN)
		if made.chain != "" {
			if err := at.mayJump(made.chain); err != 0 {
				return err
			}
		}
	}
	if found {
		if header&netlink.Excl != 0 || !bytes.Equal(s.elements[key].attrs[unix.NFTA_SET_ELEM_DATA], data) {
			return unix.EEXIST
		}
		return 0
	}
	if timeout := cmp.Or(e.uint64(unix.NFTA_SET_ELEM_TIMEOUT), s.attrs.uint64(unix.NFTA_SET_TIMEOUT)); timeout > 0 {
		left := cmp.Or(e.uint64(unix.NFTA_SET_ELEM_EXPIRATION), timeout)
		made.expires = t.now.Add(time.Duration(left) * time.Millisecond)
	}
	s.elements[key] = made
	return 0
}

func (e element) lives(now time.Time) bool { return e.expires.IsZero() || now.Before(e.expires) }

// Update adds an element to a set as a rule does for a packet (update): if it is there, only its time
// begins again. That makes no generation. It reports whether there is such a set.
func (k *Kernel) Update(family byte, tableName, setName string, key, data []byte, timeout time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.tables[tableKey{family, tableName}]
	if at == nil || at.set(setName) == nil {
		return false
	}
	s, now := at.set(setName), time.Now()
	e := attributes{
		unix.NFTA_SET_ELEM_KEY:     attributes{unix.NFTA_DATA_VALUE: key}.marshal(),
		unix.NFTA_SET_ELEM_DATA:    attributes{unix.NFTA_DATA_VALUE: data}.marshal(),
		unix.NFTA_SET_ELEM_TIMEOUT: long(uint64(timeout.Milliseconds())),
	}
	id, err := s.key(e)
	if err != 0 {
		return false
	}
	if was, ok := s.elements[id]; ok && was.lives(now) {
		e = was.attrs
		timeout = time.Duration(e.uint64(unix.NFTA_SET_ELEM_TIMEOUT)) * time.Millisecond
	}
	s.elements[id] = element{attrs: e, expires: now.Add(timeout)}
	return true
}

// Elements returns the data of the elements that a set has now, by key. It takes no message.
func (k *Kernel) Elements(family byte, tableName, setName string) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := k.tables[tableKey{family, tableName}]
	if at == nil || at.set(setName) == nil {
		return nil
	}
	all, now := map[string]string{}, time.Now()
	for _, e := range at.set(setName).elements {
		if e.lives(now) {
			all[string(e.attrs.value(unix.NFTA_SET_ELEM_KEY))] = string(e.attrs.value(unix.NFTA_SET_ELEM_DATA))
		}
	}
	return all
}
