// Package docs has the page that the program reads, beside those for people.
package docs

import _ "embed"

// Configuration is the page with the tables of all settings: the help of flags is made of them.
//
//go:embed configuration.md
var Configuration string
