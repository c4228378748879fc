package apitest

import (
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Access is what a request needs permission for.
type Access struct {
	Verb     string   // get, list, watch, create, patch, delete
	Group    string   // empty for the core group
	Resource Resource // empty if the request is about no objects, like /version
	Name     string   // of the only object that is concerned, if there is just one
}

// Denied returns what the rules refused so far.
func (s *Server) Denied() (all []Access) {
	for _, q := range s.Requests("") {
		if q.Denied {
			all = append(all, q.Access)
		}
	}
	return all
}

// SetRules changes what clients may do; nil is everything.
func (s *Server) SetRules(rules []rbacv1.PolicyRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Rules = rules
}

// access is what the request needs permission for.
func (x *exchange) access() Access {
	a := Access{Group: x.PathValue("group"), Resource: Resource(x.PathValue("resource")), Name: x.PathValue("name")}
	switch {
	case x.Method == http.MethodPost:
		a.Verb = "create"
	case x.Method != http.MethodGet || a.Name != "":
		a.Verb = strings.ToLower(x.Method)
	default:
		a.Verb = "list"
		if x.flag("watch") {
			a.Verb = "watch"
		}
		// A rule with resourceNames allows these too if just one name is selected.
		a.Name, _ = x.fields.RequiresExactMatch("metadata.name")
	}
	return a
}

// permitted reports whether rules allow it. What is about no objects is allowed, as with system:discovery and
// system:public-info-viewer, which all have.
func (a Access) permitted(rules []rbacv1.PolicyRule) bool {
	return rules == nil || a.Resource == "" || slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		has := func(list []string, v string) bool {
			return slices.Contains(list, v) || slices.Contains(list, rbacv1.VerbAll)
		}
		return has(r.Verbs, a.Verb) && has(r.APIGroups, a.Group) && has(r.Resources, string(a.Resource)) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
	})
}
