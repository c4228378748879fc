package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keyring has the keys of all of Debian's suites that are served; it is in the package
// debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Mirror has Debian's folders debian and debian-security.
const Mirror = "http://deb.debian.org"

// Archive are suites of Debian for one architecture, on a mirror.
type Archive struct {
	Cache
	Mirror       string   // URL of the folder that has "debian" and "debian-security"
	Suites       []string // packages of the last go before
	Architecture string   // Debian's name of it
}

// Folder returns the folder of a name, as the cache does.
func (a Archive) Folder(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	return a.Cache.Folder(ctx, filepath.Join(a.String(), name), fill)
}

// String is also the name of a folder.
func (a Archive) String() string { return strings.Join(a.Suites, ",") + "-" + a.Architecture }

// sources are the lines of apt's list.
func (a Archive) sources() (lines string) {
	for _, suite := range a.Suites {
		folder := "debian"
		if strings.HasSuffix(suite, "-security") {
			folder = "debian-security"
		}
		lines += fmt.Sprintf("deb [arch=%s signed-by=%s] %s/%s %s main\n", a.Architecture, keyring, a.Mirror, folder, suite)
	}
	return lines
}

// config is apt's configuration. Nothing of the host's is read, and no package counts as
// installed, so that apt downloads all dependencies.
//
// apt verifies each suite's signature with the keyring, and each package's checksum, also in a suite
// that is no longer maintained. The date until which a suite is valid is not checked: such a suite
// is not signed again when it has passed.
func (a Archive) config(dir string) string {
	return fmt.Sprintf(`Dir "%s/";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
Dir::Etc::sourcelist "%[1]s/sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "state";
Dir::State::status "%[1]s/status";
Dir::Cache "cache";
APT::Architecture "%s";
APT::Architectures "%[2]s";
APT::Default-Release "%s";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Debug::NoLocking "true";
`, dir, a.Architecture, a.Suites[len(a.Suites)-1])
}

// state is the folder of apt's configuration and lists.
func (a Archive) state() string { return filepath.Join(a.Dir, a.String(), "apt") }

// Apt runs a program of apt's in a folder.
func (a Archive) Apt(ctx context.Context, dir, program string, args ...string) (string, error) {
	return output(Command(ctx, program, args...), dir, "APT_CONFIG="+filepath.Join(a.state(), "config"))
}

// Packages unpacks packages and all that they depend on, as [Cache.Packages] does.
func (a Archive) Packages(ctx context.Context, names []string) (string, error) {
	return getPackages(ctx, names, a.Folder, func(dir string, args ...string) error {
		if err := a.Update(ctx); err != nil {
			return err
		}
		_, err := a.Apt(ctx, dir, "apt-get", args...)
		return err
	})
}

// Update reads the lists of packages. Its caller holds the cache's lock.
func (a Archive) Update(ctx context.Context) error {
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("find the keys of Debian's suites (package debian-archive-keyring): %w", err)
	}
	dir := a.state()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "state/lists/partial"), 0o755),
		os.MkdirAll(filepath.Join(dir, "cache/archives/partial"), 0o755),
		os.WriteFile(filepath.Join(dir, "status"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "sources"), []byte(a.sources()), 0o644),
		os.WriteFile(filepath.Join(dir, "config"), []byte(a.config(dir)), 0o644),
	); err != nil {
		return err
	}
	_, err := a.Apt(ctx, dir, "apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
	return err
}
