package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

const objectsWithSecrets = `items:
- kind: Service
  metadata:
    name: token
    annotations: {example.org/token: "this stays", password: "as it is"}
`

// What may be a secret leaves a log with the rest of its line. Objects are written as they are: they must stay
// readable for "vmapd render".
func TestSecretsLeaveLogsAndObjectsStay(t *testing.T) {
	log := []string{
		`level=INFO msg="not ready" service=shop/token`,
		`I1128 curl -v -H "Authorization: Bearer abc.def" 'https://10.0.0.1:6443/api'`,
		`headers={"Authorization":["Basic dXNlcjpwYXNz"],"Accept":["*/*"]}`,
		`{"level":"INFO","msg":"request","headers":"Cookie: session=s3cr3t; theme=dark"}`,
		`password: "correct horse battery"`,
		`dial https://admin:s3cr3t@proxy.example:3128: refused`,
		`got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl from the file`,
		`level=WARN msg="the token of this pod expires"`,
	}
	plugin := Plugin{Namespace: "kube-system", Selector: "k8s-app=vmapd", Kubectl: func(ctx context.Context, args ...string) ([]byte, error) {
		switch line := strings.Join(args, " "); {
		case strings.Contains(line, "--previous=true"):
			return nil, errors.New(`previous terminated container "vmapd" in pod "vmapd-a" not found`)
		case args[0] == "logs":
			return []byte(strings.Join(log, "\n")), nil
		case strings.HasPrefix(line, "get services"):
			return []byte(objectsWithSecrets), nil
		case strings.HasSuffix(line, "doctor"):
			return []byte("fail  something"), errors.New("command terminated with exit code 3")
		case args[0] == "get":
			return answers(ctx, args...)
		}
		return []byte("{}"), nil
	}}
	files, missing := collect(t, &plugin, "a")
	if got := files["objects.yaml"]; got != objectsWithSecrets {
		t.Errorf("the objects were changed:\n%s", got)
	}
	got := strings.Split(strings.TrimSuffix(files["a/log.txt"], "\n"), "\n")
	for i, line := range got {
		for _, secret := range []string{"abc.def", "dXNl", "s3cr3t", "dark", "horse", "battery", "c2ln"} {
			if strings.Contains(line, secret) {
				t.Errorf("%q has a secret", line)
			}
		}
		if cut := strings.Contains(line, leftOut); cut != (i != 0 && i != len(log)-1) {
			t.Errorf("cut: %t: %q", cut, line)
		}
	}
	if len(got) != len(log) || len(missing) > 0 && !slices.Equal(missing, []string{"pods.txt: not found"}) {
		t.Errorf("%d lines; missing %q", len(got), missing)
	}
}

// What could not be collected is named by Bundle and in the archive, and has no file that looks as if it were there.
func TestABundleNamesWhatItLacks(t *testing.T) {
	plugin := Plugin{Namespace: "kube-system", Selector: "k8s-app=vmapd", Kubectl: func(ctx context.Context, args ...string) ([]byte, error) {
		if line := strings.Join(args, " "); args[0] == "logs" || strings.HasPrefix(line, "get services") {
			return nil, errors.New("forbidden; Authorization: Bearer xyz")
		} else if args[0] == "get" {
			return answers(ctx, args...)
		}
		return []byte("{}"), nil
	}}
	files, missing := collect(t, &plugin, "a", "c", "d")
	for _, want := range []string{
		"a/log.txt: forbidden", "objects.yaml: forbidden", "c/status.json: pod /vmapd-c is Pending", "d: no pod of vmapd is on this node",
	} {
		if !slices.ContainsFunc(missing, func(text string) bool { return strings.HasPrefix(text, want) }) {
			t.Errorf("%q is not named in %q", want, missing)
		}
		if !strings.Contains(files["missing.txt"], want) {
			t.Errorf("%q is not in missing.txt:\n%s", want, files["missing.txt"])
		}
	}
	if _, there := files["objects.yaml"]; there || strings.Contains(files["missing.txt"], "xyz") || files["a/version.txt"] != "{}" {
		t.Errorf("files: %q", files)
	}
}

func collect(t *testing.T, p *Plugin, nodes ...string) (files map[string]string, missing []string) {
	t.Helper()
	var archive bytes.Buffer
	n, missing, err := p.Bundle(t.Context(), &archive, nodes, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for in := tar.NewReader(unpacked); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(data)
	}
	if n != len(files) {
		t.Errorf("%d files, said %d", len(files), n)
	}
	return files, missing
}
