package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
)

// Whoever reads a report after a long time gets a new one, unless that takes long.
func TestReportsAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, examinations := time.Second, 0
		r := reports{examines: func() doctor.Report {
			examinations++
			began := time.Now()
			time.Sleep(takes)
			return doctor.Report{At: began}
		}}
		age := func() time.Duration { return time.Since(r.Fresh().At) }
		if got := age(); got != takes {
			t.Errorf("the first report is %v old, want %v", got, takes)
		}
		time.Sleep(examinedEvery / 2)
		if got, want := age(), takes+examinedEvery/2; got != want || examinations != 1 {
			t.Errorf("soon after, the report is %v old after %d examinations, want %v after 1", got, examinations, want)
		}
		time.Sleep(time.Hour)
		if got := age(); got != takes || examinations != 2 {
			t.Errorf("an hour later, the report is %v old after %d examinations, want %v after 2", got, examinations, takes)
		}
		time.Sleep(time.Hour)
		takes = time.Minute
		if got, want := age(), time.Hour+time.Second+pageWait; got != want {
			t.Errorf("while an examination takes long, the report is %v old, want %v", got, want)
		}
		synctest.Wait()
		time.Sleep(takes)
		if got, want := age(), takes+pageWait; got > want || examinations != 3 {
			t.Errorf("after that, the report is %v old after %d examinations, want %v at most after 3", got, examinations, want)
		}
	})
}
