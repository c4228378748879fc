package model

// FamilyError is an error of one IP family. The other family is not affected.
type FamilyError struct {
	Family Family
	Err    error
}

func (e *FamilyError) Error() string { return e.Family.String() + ": " + e.Err.Error() }

// Unwrap returns the error without its family.
func (e *FamilyError) Unwrap() error { return e.Err }

// RefusedError is an error of single service ports of one IP family. They are as before, in whole or in part.
// Everything else is programmed, in this family and in the other one.
type RefusedError struct {
	Family Family
	Ports  map[ServicePortName]bool
	Err    error
}

func (e *RefusedError) Error() string { return e.Family.String() + ": " + e.Err.Error() }

// Unwrap returns the error without its family and service ports.
func (e *RefusedError) Unwrap() error { return e.Err }

// Failures returns what an error leaves unprogrammed: of each [FamilyError] in it, that family; of each
// [RefusedError], its service ports; of any other error, both families.
func Failures(err error) (families [len(Families)]bool, ports [len(Families)]map[ServicePortName]bool) {
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // This walks the whole tree by itself.
		case nil:
			return
		case *FamilyError:
			families[e.Family] = true
			return
		case *RefusedError:
			ports[e.Family] = e.Ports
			return
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
			return
		case interface{ Unwrap() error }:
			if inner := e.Unwrap(); inner != nil {
				walk(inner)
				return
			}
		}
		families = [len(Families)]bool{IPv4: true, IPv6: true}
	}
	walk(err)
	return families, ports
}

// IsProgrammed reports whether a snapshot is programmed, at least but for single service ports, after an attempt
// that ended with an error, or nil.
func IsProgrammed(err error) bool {
	families, _ := Failures(err)
	return families == [len(Families)]bool{}
}
