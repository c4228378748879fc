package compile_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// FuzzNames looks for names that the model accepts, and for which a set or chain gets a name that
// the kernel or nft refuses: such a name would stop all Services of the family.
func FuzzNames(f *testing.F) {
	label := "0" + strings.Repeat("a", 62)
	f.Add("ns1", "web", "http")
	f.Add("ns1", "web", "")
	f.Add("9", "0", "0")
	f.Add(label, label, label)
	f.Add("ns1", label+"."+label+"."+label+"."+label[:61], "http")
	f.Add(label, label+"a", label)
	f.Add("both-", "a/b", "a\nb")
	const longest = 255 // NFT_NAME_MAXLEN with its final zero
	name := regexp.MustCompile(`^[a-z][a-z0-9/._-]*$`)
	f.Fuzz(func(t *testing.T, namespace, service, port string) {
		web := modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").External("192.168.99.11").
			Policies("Cluster", "Local").Sticky(60).TCP(port, 80).NodePort(30001)
		web.NamespacedName = model.NamespacedName{Namespace: namespace, Name: service}
		slice := modeltest.NewSlice("ns1/web", service).TCP(port, 8080).Local("10.0.0.2", "10.0.0.3")
		slice.Namespace = namespace
		s := modeltest.Snapshot(modeltest.Config(), web, slice, modeltest.OurNode())
		for _, family := range model.Families {
			r := compile.Options{}.Compile(nil, s.Family(family))
			for _, set := range r.AllSets() {
				if !name.MatchString(set.Name) || len(set.Name) > longest || nft.DeclarationOf(set.Name).Key == nil {
					t.Errorf("a set of %d characters: %q", len(set.Name), set.Name)
				}
			}
			for _, chain := range r.Table().Chains {
				if !name.MatchString(chain.Name) || len(chain.Name) > longest || strings.ContainsAny(chain.Comment, "\n") {
					t.Errorf("a chain of %d characters: %q: %q", len(chain.Name), chain.Name, chain.Comment)
				}
			}
			checkSlots(t, r) // also checks the comments of elements
		}
		most := 1
		if service == "" { // the slice lacks its label
			most = 2
		}
		if len(s.Problems) > most {
			t.Errorf("%d problems of one name: %v", len(s.Problems), s.Problems)
		}
	})
}

// A tenant chooses the name of a namespace. It must not look like the beginning of another
// set's name: the set both-x/… of a Service in x was once that of a Service in both-x.
func TestNoNamespaceMixesUpSetsOfAffinity(t *testing.T) {
	objects := []modeltest.Object{modeltest.OurNode()}
	for i, ns := range []string{"x", "local-x", "affinity-x", "endpoints-x", "local-affinity-x", "remember-x"} {
		name := ns + "/web"
		objects = append(
			objects,
			modeltest.NewService(name).Typed("LoadBalancer").On("172.30.0."+string(rune('1'+i))).TCP("http", 80).
				LoadBalancer("192.168.98."+string(rune('1'+i))).Policies("Cluster", "Local").Sticky(60),
			modeltest.NewSlice(name+"-1", name).TCP("http", 8080).Local("10.0.0.2"),
		)
	}
	s := modeltest.Snapshot(modeltest.Config(), objects...).Family(model.IPv4)
	r := compile.Options{}.Compile(nil, s)
	seen := map[string]bool{}
	for _, set := range r.AllSets() {
		if seen[set.Name] {
			t.Errorf("set %s: declared twice", set.Name)
		}
		seen[set.Name] = true
	}
	if _, err := nftsim.New(r.Table(), s.NodeAddrs...); err != nil {
		t.Error(err)
	}
}
