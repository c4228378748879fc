package life

import (
	"os"
	"strings"
	"testing"
)

func TestConversionsRunTheCommandsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../../vmapd/docs/from-kube-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{
		save, writeManifest, onDelete, rollingUpdate, setImage, deletePod, status, undoRollout, leave, applyVmapd, label, unlabel,
		deleteProxy, allNodes, deleteVmapd, unlabelAll, restoreProxy, cleanedUp, removeVmapd,
	} {
		if !strings.Contains(string(page), "\n"+c+"\n") {
			t.Errorf("the page has not %s", c)
		}
	}
}
