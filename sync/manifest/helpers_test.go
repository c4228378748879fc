package manifest

// Parse reads the manifest in data. Errors have the given name.
func Parse(name string, data []byte) (*Objects, []error) {
	o := merge([]*file{parse(name, data)})
	return o, o.errs
}
