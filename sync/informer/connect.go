package informer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vmapd/vmapd/sync/kube/client"
)

// Config says how to reach the API server. Its fields and defaults are those of kube-proxy's
// clientConnection.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file. If both it and Master are empty, the
	// pod's service account is used.
	Kubeconfig string
	// Master is the URL of the API server, in place of the one in the file.
	Master string
	// ContentType is the format of requests, and of responses unless AcceptContentTypes
	// is set. Default: application/vnd.kubernetes.protobuf, and JSON is accepted too.
	ContentType string
	// AcceptContentTypes are the accepted formats of responses. Default: see ContentType.
	AcceptContentTypes string
	// QPS bounds the requests per second; less than 0 means no bound. Default: 5.
	QPS float32
	// Burst is the number of requests that may exceed QPS for a moment. Default: 10.
	Burst int
}

// REST returns a configuration for client-go's clients. They follow the files with certificates and tokens that the
// kubeconfig names: when they are replaced, no restart is needed. They do not follow the kubeconfig itself.
func (c Config) REST() (*rest.Config, error) {
	out, err := c.load()
	if err != nil {
		return nil, err
	}
	out.QPS, out.Burst = c.QPS, c.Burst
	out.ContentType = cmp.Or(c.ContentType, runtime.ContentTypeProtobuf)
	out.AcceptContentTypes = c.AcceptContentTypes
	if out.AcceptContentTypes == "" && out.ContentType == runtime.ContentTypeProtobuf {
		out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return out, nil
}

// load reads the kubeconfig.
func (c Config) load() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		out, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("no kubeconfig and no master is given, and this is no pod: KUBERNETES_SERVICE_HOST is not set")
		}
		return out, err
	}
	out, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: c.Master}},
	).ClientConfig()
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		err = file.Err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return out, nil
}

// Connect returns a client with a rate limit of its own. It sends no request yet: the server
// may be away.
func Connect(c Config) (*client.Client, error) {
	conf, err := c.REST()
	if err != nil {
		return nil, err
	}
	out, err := client.New(conf)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", conf.Host, err)
	}
	return out, nil
}
