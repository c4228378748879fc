package apitest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Access is what a request needs permission for.
type Access struct {
	Verb     string // get, list, watch, create, update, patch, delete
	Group    string // empty for the core group
	Resource string
	Name     string // of the only object that is concerned, if there is just one
}

// Asked returns what was asked for so far, without names, each once and sorted. What
// is no resource, like /version, is not in it.
func (s *Server) Asked() []Access {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.asked), func(a, b Access) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
}

// Denied returns what the rules refused so far.
func (s *Server) Denied() []Access {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.denied)
}

// SetRules changes what clients may do; nil is everything.
func (s *Server) SetRules(rules []rbacv1.PolicyRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = rules
}

// authorized reports whether the rules allow a request. If not, it responds with 403.
func (s *Server) authorized(x *exchange) bool {
	if x.resource == "" {
		return true // as with system:discovery and system:public-info-viewer, which all have
	}
	a := x.access()
	s.mu.Lock()
	s.asked[Access{Verb: a.Verb, Group: a.Group, Resource: a.Resource}] = true
	ok := s.rules == nil || slices.ContainsFunc(s.rules, a.allowedBy)
	if !ok {
		s.denied = append(s.denied, a)
	}
	s.mu.Unlock()
	if !ok {
		x.refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf(`%s is forbidden: User "system:kube-proxy" cannot %s resource %q in API group %q`, a.Resource,
				a.Verb, a.Resource, a.Group))
	}
	return ok
}

func (x *exchange) access() Access {
	a := Access{Group: x.Group, Resource: string(x.resource), Name: x.name}
	a.Verb = map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update",
		http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[x.r.Method]
	if a.Verb == "get" && a.Name == "" {
		a.Verb = "list"
		if x.watch {
			a.Verb = "watch"
		}
		// A rule with resourceNames allows these too if just one name is selected.
		if sel, err := fields.ParseSelector(x.query.Get("fieldSelector")); err == nil {
			a.Name, _ = sel.RequiresExactMatch("metadata.name")
		}
	}
	return a
}

func (a Access) allowedBy(r rbacv1.PolicyRule) bool {
	has := func(list []string, v string) bool {
		return slices.Contains(list, v) || slices.Contains(list, rbacv1.VerbAll)
	}
	return has(r.Verbs, a.Verb) && has(r.APIGroups, a.Group) && has(r.Resources, a.Resource) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}
