package page

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// The sizes of screens.
const phoneWidth, phoneHeight, screenWidth, screenHeight = 390, 760, 1180, 710

// screenshots takes those of the page operate.md.
func (b *tab) screenshots(t *testing.T) {
	t.Helper()
	b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(b.address))
	b.has(t, "#verdict", "Some connections fail")
	b.search(t, "default/refused", 1)
	b.click(t, "#services a")
	b.has(t, "#chosen", "no endpoint is ready")
	b.search(t, "default", 3)
	top := func() { ask(t, b, chromedp.Evaluate[string](`scrollTo(0, 0), ""`)) }
	top()
	b.keep(t, "page-failing.png", chromedp.CaptureScreenshot())
	b.click(t, "#services tr:last-child a")
	b.has(t, "#chosen", "10.1.0.2:8080")
	top()
	b.keep(t, "page.png", chromedp.CaptureScreenshot())
	b.scheme(t, "dark")
	top()
	b.keep(t, "page-dark.png", chromedp.CaptureScreenshot())
	b.do(t, chromedp.EmulateViewport(phoneWidth, phoneHeight))
	top()
	b.keep(t, "page-phone.png", chromedp.CaptureScreenshot())
	b.do(t, chromedp.EmulateViewport(screenWidth, screenHeight))
	b.scheme(t, "light")
}

// keep writes a screenshot with few colours: a page is read by many.
func (b *tab) keep(t *testing.T, name string, take chromedp.Action[[]byte]) {
	t.Helper()
	shot, err := png.Decode(bytes.NewReader(ask(t, b, take)))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&file, reduced(shot)); err != nil {
		t.Fatal(err)
	}
	const most = 100_000
	if file.Len() > most {
		t.Errorf("%s has %d bytes, more than %d", name, file.Len(), most)
	}
	if *testaid.Update {
		if err := os.WriteFile(filepath.Join(root, "cmd/vmapd/docs/pictures", name), file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// reduced returns an image with its most frequent colours, and the nearest ones of these for the others.
func reduced(from image.Image) *image.Paletted {
	const most = 256
	pixels := map[color.Color]int{}
	for y := from.Bounds().Min.Y; y < from.Bounds().Max.Y; y++ {
		for x := from.Bounds().Min.X; x < from.Bounds().Max.X; x++ {
			pixels[from.At(x, y)]++
		}
	}
	palette := color.Palette(slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return cmp.Compare(pixels[b], pixels[a]) }))
	palette = palette[:min(most, len(palette))]
	indices := map[color.Color]uint8{}
	for c := range pixels {
		indices[c] = uint8(palette.Index(c)) //nolint:gosec // below 256
	}
	to := image.NewPaletted(from.Bounds(), palette)
	for y := from.Bounds().Min.Y; y < from.Bounds().Max.Y; y++ {
		for x := from.Bounds().Min.X; x < from.Bounds().Max.X; x++ {
			to.SetColorIndex(x, y, indices[from.At(x, y)])
		}
	}
	return to
}
