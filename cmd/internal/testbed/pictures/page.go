package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/chromedp/chromedp"
)

// page returns a screenshot of the status page, as a PNG, once it shows the Service in its address, and connections
// to it.
func page(ctx context.Context, address string, width, height int64) (png []byte, err error) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	folder, err := os.MkdirTemp("", "pictures-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // its own namespaces need privileges that root of a user namespace lacks
		chromedp.UserDataDir(folder))
	ctx, endBrowser := chromedp.NewExecAllocator(ctx, options...)
	defer endBrowser()
	ctx, endTab := chromedp.NewContext(ctx)
	defer endTab()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height), chromedp.Navigate(address)); err != nil {
		return nil, err
	}
	const complete = `String(document.querySelector(".path") !== null && ` +
		`document.querySelector("#node").textContent.includes("Doctor") && !document.body.textContent.includes("0.0 now"))`
	for {
		shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](complete))
		if err != nil {
			return nil, err
		}
		if shown == "true" {
			return chromedp.Run(ctx, chromedp.CaptureScreenshot())
		}
		const often = 100 * time.Millisecond
		time.Sleep(often)
	}
}
