package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Programs of the control plane; their processes have the same names.
const (
	etcd              = "etcd"
	apiserver         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

const (
	frontProxy    = "front-proxy"
	bootstrappers = "system:bootstrappers"

	startLimit = 10 * time.Minute // for machines that are emulated, or busy with other things
)

// startControlPlane starts etcd, the API server and the controllers.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	c.Log.Info("starting the control plane")
	if err := makePKI(c.path("pki")); err != nil {
		return err
	}
	if err := writeFilled("audit.yaml", c.path("audit.yaml"), nil); err != nil {
		return err
	}
	for _, name := range []string{etcd, apiserver} {
		if err := c.startControl(ctx, name); err != nil {
			return err
		}
	}
	if err := c.AwaitAPIServer(ctx); err != nil {
		return err
	}
	for _, name := range []string{controllerManager, scheduler} {
		if err := c.startControl(ctx, name); err != nil {
			return err
		}
	}
	return c.admitNodes(ctx)
}

func (c *Cluster) startControl(ctx context.Context, name string) error {
	args := map[string]func() []string{
		etcd: c.etcdArgs, apiserver: c.apiserverArgs, controllerManager: c.controllerManagerArgs, scheduler: func() []string { return c.controllerArgs(scheduler) },
	}
	p := c.Process(name)
	p.Space, p.Args = Control, append([]string{c.program(name)}, args[name]()...)
	return p.Start(ctx)
}

// AwaitAPIServer waits until the API server is ready, for instance after a restart.
func (c *Cluster) AwaitAPIServer(ctx context.Context) error {
	client, err := c.rest()
	if err != nil {
		return err
	}
	return Until(ctx, startLimit, "wait for the API server", func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, c.Process(etcd), c.Process(apiserver))
}

func (c *Cluster) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.path("etcd"),
		"--unsafe-no-fsync", // the data need not outlive the machine
		"--log-level=warn",
	}
}

func (c *Cluster) apiserverArgs() []string {
	v4, _ := Addresses(Control)
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=::",
		"--advertise-address=" + v4.String(),
		fmt.Sprintf("--secure-port=%d", apiPort),
		"--service-cluster-ip-range=" + ServiceRanges,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--client-ca-file=" + c.path("pki/ca.crt"),
		"--tls-cert-file=" + c.path("pki/apiserver.crt"),
		"--tls-private-key-file=" + c.path("pki/apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc." + ClusterDomain,
		"--service-account-key-file=" + c.path("pki/sa.pub"),
		"--service-account-signing-key-file=" + c.path("pki/sa.key"),
		"--kubelet-client-certificate=" + c.path("pki/apiserver-client.crt"),
		"--kubelet-client-key=" + c.path("pki/apiserver-client.key"),
		"--kubelet-certificate-authority=" + c.path("pki/ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + c.path("pki/front-ca.crt"),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.path("pki/front.crt"),
		"--proxy-client-key-file=" + c.path("pki/front.key"),
		"--audit-policy-file=" + c.path("audit.yaml"),
		"--audit-log-path=" + c.path("log/audit.log"),
		"--audit-log-maxsize=200",
	}
}

func (c *Cluster) controllerManagerArgs() []string {
	return append(
		c.controllerArgs(controllerManager),
		"--use-service-account-credentials",
		"--root-ca-file="+c.path("pki/ca.crt"),
		"--service-account-private-key-file="+c.path("pki/sa.key"),
		"--cluster-signing-cert-file="+c.path("pki/ca.crt"),
		"--cluster-signing-key-file="+c.path("pki/ca.key"),
		"--allocate-node-cidrs",
		"--cluster-cidr="+PodRanges,
		"--service-cluster-ip-range="+ServiceRanges,
	)
}

func (c *Cluster) controllerArgs(user string) []string {
	conf := c.path("pki", user+".conf")
	return []string{
		"--kubeconfig=" + conf,
		"--authentication-kubeconfig=" + conf,
		"--authorization-kubeconfig=" + conf,
		"--leader-elect=false",
	}
}

// admitNodes lets kubelets ask for certificates, as kubeadm does, and has these requests approved.
func (c *Cluster) admitNodes(ctx context.Context) error {
	const requests = "system:certificates.k8s.io:certificatesigningrequests:"
	for role, group := range map[string]string{
		"system:node-bootstrapper":  bootstrappers,
		requests + "nodeclient":     bootstrappers,
		requests + "selfnodeclient": "system:nodes",
	} {
		b := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "testbed:" + role[strings.LastIndexByte(role, ':')+1:]},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}
		_, err := c.Client().RbacV1().ClusterRoleBindings().Create(ctx, b, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("admit nodes: %w", err)
		}
	}
	return nil
}

// RestartControlPlane restarts one of the control plane's processes, and waits until the API
// server is ready.
func (c *Cluster) RestartControlPlane(ctx context.Context, name string, signal unix.Signal) error {
	if err := c.Process(name).Restart(ctx, signal); err != nil {
		return err
	}
	return c.AwaitAPIServer(ctx)
}
