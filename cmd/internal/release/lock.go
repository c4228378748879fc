package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// lock says which packages of Debian's an image has.
type lock struct {
	date     time.Time // when the lock was written
	mirrors  []string  // the first that has a package gives it; the last is an archive of all times
	packages map[string][]debianPackage
}

type debianPackage struct{ name, version, sum, path string }

// architecture is Debian's name of the processor, or "all".
func (p debianPackage) architecture() string {
	name := strings.TrimSuffix(path.Base(p.path), ".deb")
	return name[strings.LastIndex(name, "_")+1:]
}

func parseLock(text string) (lock, error) {
	l := lock{packages: map[string][]debianPackage{}}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "date" && len(fields) == 2:
			date, err := time.Parse(time.DateOnly, fields[1])
			if err != nil {
				return lock{}, err
			}
			l.date = date
		case fields[0] == "mirror" && len(fields) == 2:
			l.mirrors = append(l.mirrors, fields[1])
		case len(fields) == 5 && len(fields[3]) == sha256.Size*2:
			l.packages[fields[0]] = append(l.packages[fields[0]], debianPackage{fields[1], fields[2], fields[3], fields[4]})
		default:
			return lock{}, fmt.Errorf("no line of a lock file: %q", line)
		}
	}
	if l.date.IsZero() || len(l.mirrors) == 0 {
		return lock{}, errors.New("date or mirror is missing")
	}
	return l, nil
}

// fetch returns the file of a package, and downloads it unless the cache has it. Its checksum is always checked.
func (l lock) fetch(ctx context.Context, cache string, p debianPackage) (string, error) {
	file := filepath.Join(cache, p.sum+".deb")
	if data, err := os.ReadFile(file); err == nil && sumOf(data) == p.sum {
		return file, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	var failures []error
	for _, mirror := range l.mirrors {
		data, err := shell(ctx, "", `curl -sSfL --max-time 300 "$1"`, mirror+"/"+p.path)
		if err == nil && sumOf(data) != p.sum {
			err = fmt.Errorf("%s/%s has another checksum than packages.lock says", mirror, p.path)
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		// A process that is killed leaves no half of a file.
		work := file + fmt.Sprint(".", os.Getpid())
		return file, errors.Join(os.WriteFile(work, data, 0o644), os.Rename(work, file))
	}
	return "", fmt.Errorf("get %s: %w", path.Base(p.path), errors.Join(failures...))
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
