package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config says where the cluster is.
type Config struct {
	Kubeconfig string // a file; with Master empty as well, the pod's own credentials are used
	Master     string // the server's address, in place of the kubeconfig's
}

// Connect returns a client. It does not talk to the server yet.
func Connect(c Config) (kubernetes.Interface, error) {
	config, err := restConfig(c)
	if err != nil {
		return nil, err
	}
	// Half the bytes of JSON, and a fraction of the work.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = "vmapd"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

func restConfig(c Config) (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("read the pod's credentials: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return config, nil
}
