// Package help prints the help of vmapd's commands, and says which command or flag an unknown one
// may have been meant to be.
//
// The flags of a command come in groups: its own first, then those of package config, in the
// order of config.Groups. No line has more than 80 columns.
package help
