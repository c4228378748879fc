package informer

import (
	"crypto/tls"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// Two causes that alternate, as of two servers behind a load balancer, are logged once each. All that mean "no usable
// answer" are one.
func TestErrorsThatAlternateAreLoggedOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no"))
		logs := &testlog.Log{}
		f := quietFollower(logs)
		logged := func(err error) bool {
			before := logs.Count()
			f.failed(t.Context(), "list", err)
			return logs.Count() > before
		}
		var got []bool
		for range 3 {
			for _, err := range []error{refused, errNoList, apierrors.NewServiceUnavailable("no"), errSilent} {
				got = append(got, logged(err))
			}
		}
		want := append([]bool{true, true, false, false}, make([]bool, 8)...)
		testaid.Equal(t, "logged", want, got)
		f.works()
		if !logged(errSilent) || logged(errNoList) || !logged(refused) {
			t.Error("after a success, each cause is logged once more")
		}
	})
}

// An answer of 403 or 401 is followed by what is missing.
func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ user, want string }{
		{`User "system:serviceaccount:kube-system:vmapd" cannot watch resource`, "a ClusterRole must grant our user list and watch"},
		{`User "system:anonymous" cannot watch resource`, `sent no token or client certificate`},
	} {
		err := apierrors.NewForbidden(schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}, "", errors.New(tt.user))
		if got := remedy(err); !strings.Contains(got, tt.want) {
			t.Errorf("remedy is %q, want %q", got, tt.want)
		}
	}
	for want, err := range map[string]error{
		"expired, was revoked":  apierrors.NewUnauthorized("no"),
		"certificate authority": &url.Error{Op: "Get", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}},
	} {
		if got := remedy(err); !strings.Contains(got, want) {
			t.Errorf("remedy of %v is %q, want %q", err, got, want)
		}
	}
	if got := remedy(errSilent); got != "" {
		t.Errorf("remedy of another error is %q", got)
	}

	allowed := []rbacv1.PolicyRule{{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes", "services"}}}
	s := standardServer(t, apitest.Options{})
	s.SetRules(allowed)
	w := follow(t, s)
	w.until("the missing rights", func() bool {
		return w.logs.Count("ERROR", "resource=endpointslices", "a ClusterRole must grant", "nothing is programmed until") == 1 &&
			w.logs.Count("INFO", "resource=servicecidrs", "a ClusterRole must grant", "unused cluster IPs will not be dropped") == 1
	})
	s.SetRules(nil)
	w.want(whole[:2]...)
	w.until("the end of all failures", func() bool { return len(w.source.Failing()) == 0 })
}
