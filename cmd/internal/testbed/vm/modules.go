package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is a kernel module.
type module struct {
	name    string
	path    string   // below the folder of all; empty if it is part of the kernel
	needs   []string // modules
	aliases []string
}

// catalog are modules by name.
type catalog map[string]module

var errNoModule = errors.New("this kernel does not have it, or it is left out")

// moduleName is the kernel's own name of a module, whose file may have hyphens.
func moduleName(s string) string {
	s, _, _ = strings.Cut(path.Base(s), ".ko")
	return strings.ReplaceAll(s, "-", "_")
}

// scanModules makes the catalog of a folder like /lib/modules/6.1.0.
func scanModules(dir string) (catalog, error) {
	c := catalog{}
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for p := range strings.FieldsSeq(string(builtin)) {
		c[moduleName(p)] = module{name: moduleName(p)}
	}
	err = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(p) != ".ko" {
			return err
		}
		m, err := readModule(p)
		if err != nil {
			return fmt.Errorf("read module %s: %w", p, err)
		}
		m.path, err = filepath.Rel(dir, p)
		c[m.name] = m
		return err
	})
	return c, err
}

func readModule(file string) (module, error) {
	f, err := elf.Open(file)
	if err != nil {
		return module{}, err
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".modinfo")
	if section == nil {
		return module{}, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return module{}, err
	}
	m := parseModinfo(string(info))
	m.name = moduleName(file)
	return m, nil
}

// parseModinfo parses the section .modinfo: entries "key=value", each terminated by NUL.
func parseModinfo(info string) module {
	var m module
	for entry := range strings.SplitSeq(info, "\x00") {
		switch key, value, _ := strings.Cut(entry, "="); key {
		case "depends":
			for _, need := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' }) {
				m.needs = append(m.needs, moduleName(need))
			}
		case "alias":
			// Those with patterns are about devices, and the guest gets no new ones.
			if !strings.ContainsAny(value, "*?[ ") {
				m.aliases = append(m.aliases, value)
			}
		}
	}
	return m
}

// text is one line for each module: name, path, needs, aliases.
func (c catalog) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c)) {
		m := c[name]
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", name, m.path, strings.Join(m.needs, " "), strings.Join(m.aliases, " "))
	}
	return b.String()
}

func parseCatalog(text string) (catalog, error) {
	c := catalog{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("module catalog: not a line of four fields: %q", line)
		}
		c[f[0]] = module{f[0], f[1], strings.Fields(f[2]), strings.Fields(f[3])}
	}
	return c, nil
}

// find returns the modules meant by a name or an alias.
func (c catalog) find(name string) []string {
	if _, ok := c[moduleName(name)]; ok {
		return []string{moduleName(name)}
	}
	var found []string
	for _, m := range c {
		if slices.Contains(m.aliases, name) {
			found = append(found, m.name)
		}
	}
	slices.Sort(found)
	return found
}

// order returns a module with its dependencies in the order of loading, without those that are
// built into the kernel.
func (c catalog) order(name string) ([]module, error) {
	var list []module
	done := map[string]bool{}
	var visit func(name string) error
	visit = func(name string) error {
		m, ok := c[name]
		if !ok {
			return fmt.Errorf("module %s: %w", name, errNoModule)
		}
		if done[name] || m.path == "" {
			return nil
		}
		done[name] = true
		for _, need := range m.needs {
			if err := visit(need); err != nil {
				return fmt.Errorf("module %s: %w", name, err)
			}
		}
		list = append(list, m)
		return nil
	}
	return list, visit(moduleName(name))
}

// choose returns all modules, with their dependencies. It leaves out those in without, and modules that depend on one of
// these; if that concerns a module in load, it is an error.
func (c catalog) choose(load, without []string) (catalog, error) {
	left := maps.Clone(c)
	for _, name := range without {
		name = moduleName(name)
		if m, ok := c[name]; !ok || m.path == "" {
			return nil, fmt.Errorf("leave out module %s: this kernel does not have it, or can't do without", name)
		}
		delete(left, name)
	}
	for _, name := range load {
		if _, err := left.order(name); err != nil {
			return nil, err
		}
	}
	chosen := catalog{}
	for name, m := range left {
		if _, err := left.order(name); err == nil { // what needs a module that is left out is, too
			chosen[name] = m
		}
	}
	return chosen, nil
}
