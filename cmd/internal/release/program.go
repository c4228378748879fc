package main

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

const unknown = "unknown"

// program is a built vmapd.
type program struct {
	path, arch      string
	version, commit string
	date            time.Time // of the commit; 1970 if unknown
	info            *debug.BuildInfo
}

func readProgram(path, arch string) (program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	version := strings.Replace(info.Main.Version, "v0.0.0-", "v0.1.0-dev.", 1) // as vmapd's own, before there is a tag
	p := program{path: path, arch: arch, version: version, commit: unknown, date: time.Unix(0, 0).UTC(), info: info}
	if p.version == "" || p.version == "(devel)" {
		p.version = unknown
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOARCH":
			if s.Value != arch {
				return program{}, fmt.Errorf("%s is for %s, not for %s", path, s.Value, arch)
			}
		case "CGO_ENABLED":
			if s.Value != "0" {
				return program{}, fmt.Errorf("%s is linked to libraries that images lack: build it with CGO_ENABLED=0", path)
			}
		case "vcs.revision":
			p.commit = s.Value
		case "vcs.time":
			if p.date, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return program{}, fmt.Errorf("%s: date of the commit: %w", path, err)
			}
		}
	}
	return p, nil
}
