package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const noAssertion = "NOASSERTION"

// sbom lists what an image for one processor contains: the program's modules as the go command wrote them into it, the
// standard library, and Debian packages.
func (r release) sbom(p program, digest v1.Hash) *spdx.Document {
	imageID := common.ElementID("image")
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      imageName + "-" + p.arch,
		DocumentNamespace: fmt.Sprintf("%s/spdx/%s-%s-%s", source, imageName, p.arch, digest.Hex),
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "vmapd-release"}},
			Created:  p.date.UTC().Format(time.RFC3339),
		},
		Packages: []*spdx.Package{{
			PackageName: imageName, PackageSPDXIdentifier: imageID, PackageVersion: p.version,
			PackageDownloadLocation: noAssertion,
			PrimaryPackagePurpose:   "CONTAINER",
			PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}},
			PackageComment:          "The checksum is the digest of the image's manifest.",
		}},
		Relationships: []*spdx.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, imageID)},
	}
	add := func(pkg *spdx.Package, parent common.ElementID) common.ElementID {
		id := identifier(fmt.Sprintf("%d-%s", len(d.Packages), pkg.PackageName))
		pkg.PackageSPDXIdentifier, pkg.PackageDownloadLocation = id, noAssertion
		d.Packages = append(d.Packages, pkg)
		d.Relationships = append(d.Relationships, relation(parent, common.TypeRelationshipContains, id))
		return id
	}
	main := add(modulePackage(p.info.Main.Path, p.version), imageID)
	add(modulePackage("stdlib", p.info.GoVersion), main)
	for _, m := range p.info.Deps {
		used := cmp.Or(m.Replace, m)
		pkg := modulePackage(used.Path, used.Version)
		if used.Sum != "" { // of the module's files, and no checksum of one file
			pkg.PackageComment = "go.sum: " + used.Sum
		}
		add(pkg, main)
	}
	for _, deb := range r.lock.packages[p.arch] {
		arch := map[string]string{"arch": deb.architecture()}
		add(&spdx.Package{
			PackageName: deb.name, PackageVersion: deb.version,
			PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: deb.sum}},
			PackageFileName:           filepath.Base(deb.path),
			PackageExternalReferences: purl(packageurl.TypeDebian, "debian", deb.name, deb.version, arch),
		}, imageID)
	}
	return d
}

// modulePackage is a Go module, or the standard library.
func modulePackage(path, version string) *spdx.Package {
	i := strings.LastIndex(path, "/")
	namespace, name := path[:max(0, i)], path[i+1:]
	return &spdx.Package{
		PackageName: path, PackageVersion: version,
		PackageExternalReferences: purl(packageurl.TypeGolang, namespace, name, version, nil),
	}
}

// purl is how scanners find the vulnerabilities of a package.
func purl(kind, namespace, name, version string, qualifiers map[string]string) []*spdx.PackageExternalReference {
	u := packageurl.NewPackageURL(kind, namespace, name, version, packageurl.QualifiersFromMap(qualifiers), "")
	return []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: "purl", Locator: u.String(),
	}}
}

func relation(a common.ElementID, kind string, b common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: a}, Relationship: kind, RefB: common.DocElementID{ElementRefID: b},
	}
}

// identifier has only the characters that SPDX allows.
func identifier(s string) common.ElementID {
	return common.ElementID(regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(s, "-"))
}

func (r release) writeSBOM(p program, digest v1.Hash) error {
	f, err := os.Create(filepath.Join(r.out, imageName+"-"+p.arch+".spdx.json"))
	if err != nil {
		return err
	}
	defer f.Close()
	return json.Write(r.sbom(p, digest), f, json.Indent(" "))
}
