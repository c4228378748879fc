package model

// FamilyError is an error of one IP family. The other family is not affected.
type FamilyError struct {
	Family Family
	Err    error
}

func (e *FamilyError) Error() string { return e.Family.String() + ": " + e.Err.Error() }

// Unwrap returns the error without its family.
func (e *FamilyError) Unwrap() error { return e.Err }
