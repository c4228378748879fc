package manifest

// Parse reads the manifest in data. Errors have the given name.
func Parse(name string, data []byte) (*Objects, []Error) {
	f := parseFile(name, data, false)
	objects, _ := merge([]*file{f}) // one file has no duplicates left
	return objects, f.errs
}
