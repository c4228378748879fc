package cluster

import "fmt"

// Shape describes a cluster: the number of Services, and of endpoints of each.
type Shape struct{ Services, Endpoints int }

// most bounds both numbers: there are no more addresses.
const most = 1_000_000

// ParseShape understands 5000x50.
func ParseShape(text string) (s Shape, err error) {
	_, err = fmt.Sscanf(text, "%dx%d", &s.Services, &s.Endpoints)
	if err != nil || s.String() != text || min(s.Services, s.Endpoints) < 1 || max(s.Services, s.Endpoints) > most {
		return Shape{}, fmt.Errorf("shape %q: want SERVICESxENDPOINTS, each from 1 to %d", text, most)
	}
	return s, nil
}

func (s Shape) String() string { return fmt.Sprintf("%dx%d", s.Services, s.Endpoints) }
