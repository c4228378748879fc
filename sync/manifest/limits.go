package manifest

// Bounds on what a manifest may cost, so that no input takes the machine down.
const (
	// maxFileSize bounds one file. The largest honest ones are dumps of a cluster:
	// 250,000 endpoints take about 60 MiB in kubectl's YAML.
	maxFileSize = 64 << 20

	// maxYAMLValues bounds one YAML document. The parser needs about 200 bytes for
	// each value, and one character is enough to make one: without this, 64 MiB of
	// "-\n" would take 6 GiB.
	maxYAMLValues = 2 << 20

	// maxJSONValues bounds one JSON document: an empty object, two characters, may become
	// an endpoint of 200 bytes.
	maxJSONValues = 4 << 20

	// maxDepth bounds nesting. Objects of the API need fewer than 20 levels.
	maxDepth = 100

	// maxLists bounds how many Lists may be in each other: each one in JSON is read once
	// more for what is in it.
	maxLists = 10

	// maxErrors bounds what is said about one file, and maxObjectErrors about one
	// object in it.
	maxErrors       = 100
	maxObjectErrors = 10

	// maxQuoted bounds how much of a bad value is repeated in an error.
	maxQuoted = 80
)

// maxVisits bounds how many values of a document are looked at, given its size in
// bytes: aliases and merge keys can make it look larger than it is without bound
// (the "billion laughs"), and honest ones make it a few times as large.
func maxVisits(size int) int { return 10_000 + 10*size }
