package names

import (
	"fmt"
	"net/url"
)

// Asked is a connection as given: on a command line, or in a request to the daemon.
type Asked struct{ From, To, Namespace, Family, Interface string }

// Values are the query of a request to the daemon, which NewAsked reads.
func (r *Asked) Values() url.Values {
	return url.Values{
		"from": {r.From}, "to": {r.To}, "namespace": {r.Namespace}, "family": {r.Family}, "interface": {r.Interface},
	}
}

// NewAsked reads the query of a request.
func NewAsked(v url.Values) Asked {
	return Asked{v.Get("from"), v.Get("to"), v.Get("namespace"), v.Get("family"), v.Get("interface")}
}

// Query reads the names of both ends.
func (r *Asked) Query() (q Query, err error) {
	q.Namespace, q.Family = r.Namespace, r.Family
	if q.To, err = ParseDestination(r.To); err != nil {
		return q, err
	}
	if q.From, err = ParseSource(r.From); err != nil {
		return q, fmt.Errorf("--from: %w", err)
	}
	return q, nil
}
