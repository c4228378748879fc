package manifest

// Limits of a manifest, so that no input exhausts the machine.
const (
	// maxFileSize bounds one file. The largest useful ones are dumps of a cluster: 250,000
	// endpoints take about 60 MiB in kubectl's YAML.
	maxFileSize = 64 << 20

	// maxYAMLValues bounds one YAML document. The parser needs about 200 bytes for each
	// value, which may be one character long: 64 MiB of "-\n" would take 6 GiB.
	maxYAMLValues = 2 << 20

	// maxJSONValues bounds one JSON document: an empty object, two characters, may become
	// an endpoint of 200 bytes.
	maxJSONValues = 4 << 20

	// maxDepth bounds nesting. Objects of the API need fewer than 20 levels.
	maxDepth = 100

	// maxLists bounds the nesting of Lists: JSON is scanned again at each level.
	maxLists = 10

	// maxErrors bounds the errors about one file, and maxObjectErrors those about one object
	// in it.
	maxErrors       = 100
	maxObjectErrors = 10

	// maxQuoted bounds the length of a value in an error.
	maxQuoted = 80
)

// maxVisits bounds how many values of a document are visited, given its size in bytes.
// Aliases and merge keys can multiply values without bound (the "billion laughs"); in useful
// documents, they multiply them by a small number.
func maxVisits(size int) int { return 10_000 + 10*size }
