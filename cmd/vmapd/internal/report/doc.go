// Package report prints the output of commands: one set of words, one printer of tables, lines with a
// level and a remedy, wrapped text, JSON and YAML.
//
//	value ─── Print ──┬── json, yaml: the value
//	                  └── text, wide: a func(*Text)
//	                                    ├── Say      a line as it is
//	                                    ├── Wrap     a paragraph
//	                                    ├── Lines    failures first, remedies below, a total
//	                                    ├── Table    kubectl's columns
//	                                    └── Verdict  the last line
//
// A command's flag --output is a [Format], made by [AddFormat]. With --watch, a [Watcher] prints the tables of the
// first answer and, of further ones, rows that are gone and rows that are new.
//
// A terminal gets colours, unless NO_COLOR is set; a file, too, with CLICOLOR_FORCE=1. Failures are red, warnings
// yellow and what is good green, and a word says so, too. Text of objects can't break a line or confuse a terminal.
package report
