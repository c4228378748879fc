package informer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	config "k8s.io/component-base/config/v1alpha1"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

type connection struct{ kubeconfig, master string }

func TestConnect(t *testing.T) {
	s := standardServer(t, apitest.Options{})
	other := newServer(t, apitest.Options{})
	for _, tt := range []struct {
		name string
		conf connection
	}{
		{"from a kubeconfig", connection{kubeconfig: kubeconfig(t, s, t.TempDir())}},
		{"with another master", connection{kubeconfig: kubeconfig(t, other, t.TempDir()), master: s.URL()}},
		{"with a master alone", connection{master: s.URL()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.Requests(""))
			client, err := Connect(config.ClientConnectionConfiguration{Kubeconfig: tt.conf.kubeconfig}, tt.conf.master)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Requests("")) != before {
				t.Error("Connect talks to the server")
			}
			if _, err := client.Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			last := s.Requests("")[before]
			if got := last.Header.Get("User-Agent"); got != rest.DefaultKubernetesUserAgent() {
				t.Errorf("User-Agent: %q", got)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	conf, err := restConfig(config.ClientConnectionConfiguration{}, "http://192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if conf.ContentType != "application/vnd.kubernetes.protobuf" ||
		conf.AcceptContentTypes != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("got %+v", conf)
	}
	conf, err = restConfig(config.ClientConnectionConfiguration{ContentType: "application/json", QPS: -1, Burst: 7}, "http://192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if conf.QPS != -1 || conf.Burst != 7 || conf.ContentType != "application/json" || conf.AcceptContentTypes != "" {
		t.Errorf("got %+v", conf)
	}
}

func TestConnectErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct {
		name string
		conf connection
		want string
	}{
		{"outside of a pod", connection{}, "no kubeconfig and no master is given"},
		{"no such file", connection{kubeconfig: "/none"}, "cannot read the kubeconfig /none: no such file"},
		{"nonsense", connection{master: "http://192.0.2.1:x"}, "192.0.2.1:x"},
	} {
		if _, err := Connect(config.ClientConnectionConfiguration{Kubeconfig: tt.conf.kubeconfig}, tt.conf.master); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: want an error with %q, got %v", tt.name, tt.want, err)
		}
	}
}
