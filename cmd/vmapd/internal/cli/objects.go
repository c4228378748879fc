package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// objectFlags say where objects are: in files or in a cluster.
type objectFlags struct {
	paths      []string
	kubeconfig string
}

func (s *objectFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&s.paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file with the address and credentials of a cluster")
}

func (s *objectFlags) connect() (*client.Client, error) {
	c, err := informer.Connect(informer.Config{Kubeconfig: s.kubeconfig})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

// read reads the objects that a query is about, or all. If some could not be read, it prints them: they are not
// complete.
func (s *objectFlags) read(
	ctx context.Context, q *names.Query, stderr io.Writer,
) (d *names.Directory, complete bool, err error) {
	if s.kubeconfig == "" {
		o, complete, err := objects.Load(s.paths, stderr)
		if err != nil {
			return nil, false, err
		}
		if !complete && o.Len() == 0 {
			return nil, false, exitError(1)
		}
		return objects.Of(o), complete, nil
	}
	cluster, err := s.connect()
	if err != nil {
		return nil, false, err
	}
	r := objects.Reader{Client: cluster, Query: q}
	d, err = r.Read(ctx)
	for _, e := range r.Unread {
		report.Complain(stderr, fmt.Sprintf("%v; continuing without them", e))
	}
	return d, len(r.Unread) == 0, err
}
