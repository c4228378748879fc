package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const source = "https://github.com/vmapd/vmapd"

// labels are those of https://github.com/opencontainers/image-spec/blob/main/annotations.md.
func labels(p program) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       imageName,
		prefix + "description": "Kubernetes Service proxy on nftables, iptables or IPVS",
		prefix + "version":     p.version,
		prefix + "revision":    p.commit,
		prefix + "created":     p.date.Format(time.RFC3339),
		prefix + "source":      source,
		prefix + "url":         source,
		prefix + "licenses":    "Apache-2.0",
	}
}

// image makes the image for one processor.
func (r release) image(ctx context.Context, p program) (v1.Image, error) {
	created := v1.Time{Time: p.date}
	packages, err := packagesLayer(ctx, r.lock, r.cache, p.arch)
	if err != nil {
		return nil, err
	}
	own, err := programLayer(ctx, p)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	i, err := mutate.Append(base,
		mutate.Addendum{Layer: packages, History: v1.History{
			Created: v1.Time{Time: r.lock.date}, CreatedBy: "Debian's packages of packages.lock",
		}},
		mutate.Addendum{Layer: own, History: v1.History{Created: created, CreatedBy: "vmapd " + p.version}})
	if err != nil {
		return nil, err
	}
	config, err := i.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = p.arch, "linux", created
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/local/bin/vmapd"},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels:     labels(p),
		// The daemon needs CAP_NET_ADMIN. Kubernetes gives added capabilities to root alone: others would need
		// them at the file, which allowPrivilegeEscalation: false forbids. Commands that only read files run as anybody.
		User: "0:0",
	}
	return mutate.ConfigFile(i, config)
}

// plain is an image without an artifact type. By default, the library gives its entry in an index the type of the
// configuration. Tools older than OCI 1.1, such as skopeo 1.9, do not copy that field, and then the index has another
// digest.
type plain struct{ v1.Image }

// ArtifactType is what the library asks for.
func (plain) ArtifactType() (string, error) { return "", nil }

// writeImage writes the layout of the image with an index of its processors, and a list of what each is made of.
func (r release) writeImage(ctx context.Context, programs []program) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		i, err := r.image(ctx, p)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("for %s: %w", p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        plain{i},
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
		digest, err := i.Digest()
		if err != nil {
			return v1.Hash{}, err
		}
		if err := r.writeSBOM(p, digest); err != nil {
			return v1.Hash{}, err
		}
	}
	annotated, ok := mutate.Annotations(index, labels(programs[0])).(v1.ImageIndex)
	if !ok {
		return v1.Hash{}, fmt.Errorf("an index with annotations is a %T", annotated)
	}
	// index.json has one entry, the index of the processors, by the name that tools look for.
	p, err := layout.Write(filepath.Join(r.out, imageName), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": programs[0].version})
	if err := p.AppendIndex(annotated, name); err != nil {
		return v1.Hash{}, err
	}
	return annotated.Digest()
}
