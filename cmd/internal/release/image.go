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
func labels(v variant, p program) map[string]string {
	const prefix = "org.opencontainers.image."
	all := map[string]string{
		prefix + "title":       v.title,
		prefix + "description": v.description,
		prefix + "version":     p.version,
		prefix + "revision":    p.commit,
		prefix + "created":     p.date.Format(time.RFC3339),
		prefix + "source":      source,
		prefix + "url":         source,
		prefix + "licenses":    "Apache-2.0",
	}
	return all
}

// image makes the image of a variant for one processor.
func (r release) image(ctx context.Context, v variant, p program) (v1.Image, error) {
	var layers []mutate.Addendum
	created := v1.Time{Time: p.date}
	if v.packages {
		l, err := packagesLayer(ctx, r.lock, r.cache, p.arch)
		if err != nil {
			return nil, err
		}
		layers = append(layers, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: r.lock.date}, CreatedBy: "Debian's packages of packages.lock"}})
	}
	layers = append(layers, mutate.Addendum{Layer: p.layer, History: v1.History{Created: created, CreatedBy: "vmapd " + p.version}})
	i, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layers...)
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
		Labels:     labels(v, p),
		// The daemon needs CAP_NET_ADMIN. Kubernetes gives added capabilities to root alone: others would need
		// them at the file, which allowPrivilegeEscalation: false forbids. Commands that only read files run as anybody.
		User: "0:0",
	}
	return mutate.ConfigFile(i, config)
}

// plain is an image without a type of artifacts. By default, the library gives its entry in an index the type of the
// configuration. Tools from before OCI 1.1, such as skopeo 1.9, don't know that field: they leave it out of what they copy,
// and then the index has another digest.
type plain struct{ v1.Image }

// ArtifactType is what the library asks for.
func (plain) ArtifactType() (string, error) { return "", nil }

// writeVariant writes the layout of a variant with an index of its processors, and a list of what each is made of.
func (r release) writeVariant(ctx context.Context, v variant, programs []program) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		i, err := r.image(ctx, v, p)
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
		if err := r.writeSBOM(v, p, digest); err != nil {
			return v1.Hash{}, err
		}
	}
	annotated, ok := mutate.Annotations(index, labels(v, programs[0])).(v1.ImageIndex)
	if !ok {
		return v1.Hash{}, fmt.Errorf("an index with annotations is a %T", annotated)
	}
	// index.json has one entry, the index of the processors, by the name that tools look for.
	p, err := layout.Write(filepath.Join(r.out, v.name), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := p.AppendIndex(annotated, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": programs[0].version})); err != nil {
		return v1.Hash{}, err
	}
	return annotated.Digest()
}
