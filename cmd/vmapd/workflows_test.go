package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is a file of GitHub's Actions, as far as the tests look at it.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		TimeoutMinutes int `json:"timeout-minutes"`
		Strategy       struct{ Matrix map[string][]string }
		Steps          []struct{ Uses, Run string }
	}
}

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	// makeStep is a step that calls make: targets, and variables with values.
	makeStep = regexp.MustCompile(`^(?:sudo --preserve-env=[A-Z,]+ )?make((?: [a-z][a-z-]*)+)((?: [A-Z]+=(?:"[^"]*"|\S+))*)$`)
	action   = regexp.MustCompile(`^actions/[a-z-]+@(v\d+|[0-9a-f]{40})$`)
)

func readMakefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(testdata(t)), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// githubFiles are the YAML files for GitHub, by path below .github.
func githubFiles(t *testing.T, pattern string) map[string][]byte {
	t.Helper()
	root := filepath.Join(filepath.Dir(testdata(t)), ".github")
	names, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(name, root+"/")] = text
	}
	return all
}

// Workflows only call make, so that everybody can run what they run. Targets that are gone would show on GitHub alone.
func TestWorkflowsCallTargetsThatAreThere(t *testing.T) {
	var targets, called []string
	for _, m := range makeTarget.FindAllStringSubmatch(readMakefile(t), -1) {
		targets = append(targets, m[1])
	}
	for name, text := range githubFiles(t, "workflows/*.yml") {
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(w.Permissions) == 0 || len(w.Jobs) == 0 {
			t.Errorf("%s: permissions %v, %d jobs", name, w.Permissions, len(w.Jobs))
		}
		for job, j := range w.Jobs {
			if j.TimeoutMinutes == 0 {
				t.Errorf("%s: job %s has no limit of time", name, job)
			}
			for _, s := range j.Steps {
				m := makeStep.FindStringSubmatch(s.Run)
				switch {
				case s.Uses != "" && !action.MatchString(s.Uses):
					t.Errorf("%s: %s uses %q: want one of GitHub's own actions, with a version", name, job, s.Uses)
				case s.Uses == "" && m == nil:
					t.Errorf("%s: %s runs %q, which is not a call of make", name, job, s.Run)
				case m != nil:
					called = append(called, strings.Fields(m[1])...)
				}
			}
		}
	}
	for _, target := range called {
		if !slices.Contains(targets, target) {
			t.Errorf("the Makefile has no target %s", target)
		}
	}
	for _, want := range []string{"tidy", "build", "build-all", "lint", "test", "test-slow", "fuzz", "test-vm", "test-nft", "test-ipvs", "ci", "test-images"} {
		if !slices.Contains(called, want) {
			t.Errorf("no workflow calls make %s", want)
		}
	}
}

// make test leaves out what SLOW names: a name that is no test's would leave out nothing, and be played by nobody.
func TestSlowTestsAreThere(t *testing.T) {
	m := regexp.MustCompile(`(?m)^SLOW +:= (.*)$`).FindStringSubmatch(readMakefile(t))
	if m == nil {
		t.Fatal("the Makefile has no SLOW")
	}
	for element := range strings.FieldsSeq(strings.ReplaceAll(m[1], "'", "")) {
		folder, names, _ := strings.Cut(element, "=")
		files, err := filepath.Glob(filepath.Join(filepath.Dir(testdata(t)), folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %q: %v", folder, err)
		}
		var source strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		for name := range strings.SplitSeq(names, "|") {
			name, _, _ = strings.Cut(name, "/")
			if !strings.Contains(source.String(), "func "+name+"(t *testing.T)") {
				t.Errorf("%s has no test %s", folder, name)
			}
		}
	}
}

// The matrix has the kernels and processors that make test-kernels and make test-arch have.
func TestTheMatrixHasAllKernels(t *testing.T) {
	var w workflow
	if err := yaml.Unmarshal(githubFiles(t, "workflows/kernels.yml")["workflows/kernels.yml"], &w); err != nil {
		t.Fatal(err)
	}
	for variable, got := range map[string][]string{
		"KERNELS": w.Jobs["kernels"].Strategy.Matrix["suites"],
		"ARCHES":  w.Jobs["processors"].Strategy.Matrix["arch"],
	} {
		m := regexp.MustCompile(`(?m)^` + variable + ` *[?:]= *(.*)$`).FindStringSubmatch(readMakefile(t))
		if m == nil || !slices.Equal(strings.Fields(m[1]), got) {
			t.Errorf("the matrix has %q, the Makefile's %s %q", got, variable, m)
		}
	}
}

// A form with an error is not shown, and a folder that dependabot does not find is not watched: both silently.
func TestFormsAndUpdatesAreComplete(t *testing.T) {
	for name, text := range githubFiles(t, "ISSUE_TEMPLATE/*.yml") {
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Value string }
			}
			ContactLinks []struct{ Name, URL, About string } `json:"contact_links"`
		}
		if err := yaml.Unmarshal(text, &form); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if filepath.Base(name) == "config.yml" {
			if len(form.ContactLinks) == 0 {
				t.Errorf("%s: no link", name)
			}
			continue
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s: name %q, description %q, %d fields", name, form.Name, form.Description, len(form.Body))
		}
		for _, field := range form.Body {
			if field.Attributes.Label == "" && field.Attributes.Value == "" || field.Type != "markdown" && field.ID == "" {
				t.Errorf("%s: field %+v", name, field)
			}
		}
	}
	var updates struct {
		Updates []struct {
			PackageEcosystem string `json:"package-ecosystem"`
			Directory        string
			Directories      []string
		}
	}
	if err := yaml.Unmarshal(githubFiles(t, "dependabot.yml")["dependabot.yml"], &updates); err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(testdata(t))
	modules := 0
	wanted := map[string]string{"gomod": "go.mod", "docker": "Dockerfile", "github-actions": ".github/workflows"}
	for _, u := range updates.Updates {
		for _, dir := range slices.DeleteFunc(append(u.Directories, u.Directory), func(s string) bool { return s == "" }) {
			if _, err := os.Stat(filepath.Join(root, dir, wanted[u.PackageEcosystem])); err != nil || wanted[u.PackageEcosystem] == "" {
				t.Errorf("updates of %s in %s: %v", u.PackageEcosystem, dir, err)
			}
			if u.PackageEcosystem == "gomod" {
				modules++
			}
		}
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "-c", "safe.directory=*", "ls-files", "go.mod", "**/go.mod").Output()
	if err == nil && strings.Count(string(out), "\n") != modules {
		t.Errorf("updates look at %d modules; the repository has:\n%s", modules, out)
	}
	if len(updates.Updates) < len(wanted) {
		t.Errorf("%d kinds of updates, want %d", len(updates.Updates), len(wanted))
	}
}
