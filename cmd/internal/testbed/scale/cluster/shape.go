package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// Shape describes a cluster.
type Shape struct {
	Services int
	// Endpoints is the number of endpoints of each Service, which has a cluster IP and one TCP
	// port. It does not apply to a Mixed cluster.
	Endpoints int
	// Mixed is a realistic cluster: a few Services have thousands of endpoints, most a
	// handful and some none; there are headless Services, node ports, load balancers,
	// local traffic policies, session affinity, UDP, two ports, two families and hints.
	Mixed bool
}

const (
	mixed         = "realistic"
	mixedServices = 5_000
)

// ParseShape understands 5000x50, realistic, and realistic:60 with another number of
// Services than 5,000.
func ParseShape(text string) (Shape, error) {
	if kind, number, ok := strings.Cut(text, ":"); kind == mixed {
		n := mixedServices
		if ok {
			var err error
			if n, err = count(number); err != nil {
				return Shape{}, fmt.Errorf("shape %q: %w", text, err)
			}
		}
		return Shape{Services: n, Mixed: true}, nil
	}
	services, endpoints, ok := strings.Cut(text, "x")
	if !ok {
		return Shape{}, fmt.Errorf("shape %q: want SERVICESxENDPOINTS, %s or %s:SERVICES", text, mixed, mixed)
	}
	n, err := count(services)
	if err != nil {
		return Shape{}, fmt.Errorf("shape %q: %w", text, err)
	}
	m, err := count(endpoints)
	if err != nil {
		return Shape{}, fmt.Errorf("shape %q: %w", text, err)
	}
	return Shape{Services: n, Endpoints: m}, nil
}

// most bounds both numbers: there are no more addresses.
const most = 1_000_000

func count(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is not a number from 1 to %d", text, most)
	}
	return n, nil
}

func (s Shape) String() string {
	switch {
	case s.Mixed && s.Services == mixedServices:
		return mixed
	case s.Mixed:
		return fmt.Sprintf("%s:%d", mixed, s.Services)
	}
	return fmt.Sprintf("%dx%d", s.Services, s.Endpoints)
}
