package manifest

// Parse reads the manifest in data. Errors have the given name.
func Parse(name string, data []byte) (*Objects, []error) {
	f := parseFile(name, data, false)
	objects, twice := merge([]*file{f})
	return objects, append(f.errs, twice...)
}
