package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Names of the files with which a cluster gets vmapd.
const (
	chartName  = "vmapd-chart.tgz"
	deployName = "deploy"
)

// writeDeploy writes the manifests for kubectl and kustomize, and the chart as "helm package" does. Links are followed.
// Only the chart has the program's version, which is the image's tag; without git, it is unchanged. helm's own
// libraries would write the time of the packing into the archive.
func (r release) writeDeploy(ctx context.Context, p program) error {
	work, err := os.MkdirTemp("", "vmapd-chart-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	const script = `deploy=$1 work=$2 out=$3 version=$4 date=$5
cp -rL "$deploy/chart" "$work/vmapd"
if [ "$version" != ` + unknown + ` ]; then
	sed -i -e "s/^version: .*/version: ${version#v}/" -e "s/^appVersion: .*/appVersion: $version/" "$work/vmapd/Chart.yaml"
	test "$(grep -cxF -e "version: ${version#v}" -e "appVersion: $version" "$work/vmapd/Chart.yaml")" = 2
fi
` + reproducible + `$date --mode=u=rwX,go=rX -C "$work" -c vmapd | gzip -n >"$out/` + chartName + `"
mkdir "$out/` + deployName + `"
cd "$deploy"
find . -path ./chart -prune -o '(' -name '*.yaml' -o -name '*.json' -o -name '*.sed' -o -name '*.sh' ')' \
	-exec cp -L --parents -t "$out/` + deployName + `" {} +`
	out, err := filepath.Abs(r.out)
	if err == nil {
		_, err = shell(ctx, "", script, r.deploy, work, out, p.version, fmt.Sprint(p.date.Unix()))
	}
	if err != nil {
		return fmt.Errorf("chart and manifests: %w", err)
	}
	return nil
}
