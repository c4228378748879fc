package life

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestConversionsRunTheCommandsOfThePage(t *testing.T) {
	page := testaid.Read(t, "../../../../vmapd/docs/from-kube-proxy.md")
	for _, c := range []string{
		save, writeManifest, onDelete, rollingUpdate, setImage, deletePod, status, undoRollout, leave, applyVmapd, label, unlabel,
		deleteProxy, allNodes, deleteVmapd, unlabelAll, restoreProxy, cleanedUp, removeVmapd,
	} {
		if !strings.Contains(page, "\n"+c+"\n") {
			t.Errorf("the page has not %s", c)
		}
	}
}
