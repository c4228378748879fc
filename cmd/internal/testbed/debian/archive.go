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

// Suite is the one of programs that run on this machine or in images.
const Suite = "bookworm"

// Archive are suites of Debian for one architecture, and a folder for what is downloaded from them.
type Archive struct {
	Dir          string
	Suites       []string // packages of the last have priority
	Architecture string   // Debian's name of it
}

// Open returns an archive with the folder that programs of one user share. The processor has Go's name.
func Open(processor string, suites ...string) (Archive, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return Archive{}, fmt.Errorf("find a folder for packages: %w", err)
	}
	return Archive{Dir: filepath.Join(user, "vmapd-vm"), Suites: suites, Architecture: Architecture(processor)}, nil
}

// Architecture is Debian's name of a processor with a name of Go's.
func Architecture(processor string) string {
	return strings.Replace(processor, "ppc64le", "ppc64el", 1)
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
		lines += fmt.Sprintf("deb [arch=%s signed-by=%s] %s/%s %s main\n", a.Architecture, keyring, Mirror, folder, suite)
	}
	return lines
}

// config is apt's configuration. Nothing of the host's is read, and no package is treated
// as installed, so that apt downloads all dependencies.
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
	config := "APT_CONFIG=" + filepath.Join(a.state(), "config")
	return Output(ctx, dir, "env", append([]string{config, program}, args...)...)
}

// Update reads the lists of packages. It needs Folder's lock: its caller is fill, or has a Dir of its own.
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
