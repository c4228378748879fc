package informer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmapd/vmapd/model"
)

// candidates is the maximum of objects of a kind by which the server's history is recognized.
const candidates = 4

// doubt is that of a watch which continues on a server that may have been restored from a backup
// meanwhile. Versions are numbers that each history counts for itself, so a number alone does not show
// that a server has the state that vmapd knows: after a restore, it may have passed the number already.
//
// An object that is unchanged, with its version, shows that both histories are one up to this version.
// The watch continues from there. What vmapd has seen since is expected again, until the version that
// vmapd had. In another history, some of it does not come, and everything is listed.
type doubt struct {
	from     uint64 // both histories are one up to this version
	until    uint64
	expected map[model.NamespacedName]bool
}

// named is an object of a store.
type named struct {
	name model.NamespacedName
	held
}

// witness is an object that other kinds ask for, too: the Node. kubelet writes it every five minutes at
// least (nodeStatusReportFrequency), so its version is never much older than a bookmark's.
type witness struct {
	resource *resource
	last     atomic.Pointer[named]
}

// note notes another version, or nil if there is none any more. It may be called on nil.
func (w *witness) note(o *object) {
	switch {
	case w == nil:
	case o == nil:
		w.last.Store(nil)
	default:
		w.last.Store(&named{o.name, o.held()})
	}
}

// seen returns the object, or nil if there is none. It may be called on nil.
func (w *witness) seen() *named {
	if w == nil {
		return nil
	}
	return w.last.Load()
}

// examine finds out from which version a watch can continue, at most from a given one. The error says
// that everything must be listed, or that a request failed. The requests are for the newest state: a
// server asked for one "not older than" ours would wait for the number.
func (h *health) examine(ctx context.Context, r *resource, into *store, from uint64) (*doubt, error) {
	same := uint64(0)
	for _, o := range into.newest(candidates) {
		ok, err := h.unchanged(ctx, r, into, o, from)
		if err != nil {
			return nil, err
		}
		if ok {
			same = o.version
			break
		}
	}
	if o := h.before.Load(); same < from && o != nil && o.version > same {
		ok, err := h.unchanged(ctx, h.witness.resource, into, *o, from)
		if err != nil {
			return nil, err
		}
		if ok {
			same = o.version
		}
	}
	d := &doubt{from: min(from, same), until: from}
	var complete bool
	if d.expected, complete = into.since(d.from); !complete || d.from == 0 {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("nothing shows that the API server has the history of version %d", from))
	}
	return d, nil
}

// unchanged reports whether the server has an object as vmapd knows it. The error says that the server is
// not as far as a version, or that the request failed.
func (h *health) unchanged(ctx context.Context, r *resource, into *store, o named, version uint64) (bool, error) {
	list, err := request(ctx, h, "list", r, metav1.ListOptions{}, func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		return r.find(ctx, o.name)
	})
	if err != nil {
		return false, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return false, err
	}
	if newest, ok := parseVersion(m.GetResourceVersion()); ok && newest < version {
		return false, apierrors.NewResourceExpired(fmt.Sprintf("version %d is in the API server's future", version))
	}
	same := false
	err = meta.EachListItem(list, func(in runtime.Object) error {
		if found, ok := r.read(in, into.summer); ok && found.name == o.name {
			same = found.held() == o.held
		}
		return nil
	})
	return same, err
}

// newest returns the objects that were changed last, the last one first.
func (s *store) newest(most int) []named {
	all := make([]named, 0, len(s.known))
	for name, h := range s.known {
		all = append(all, named{name, h})
	}
	slices.SortFunc(all, func(a, b named) int { return cmp.Compare(b.version, a.version) })
	return all[:min(most, len(all))]
}

// since returns the objects that were changed or deleted after a version, and whether these are all.
func (s *store) since(version uint64) (map[model.NamespacedName]bool, bool) {
	names := map[model.NamespacedName]bool{}
	for name, h := range s.known {
		if h.version > version {
			names[name] = true
		}
	}
	for name, deleted := range s.gone {
		if deleted > version {
			names[name] = true
		}
	}
	return names, version >= s.complete
}
