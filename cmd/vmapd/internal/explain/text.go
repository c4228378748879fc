package explain

import "github.com/vmapd/vmapd/cmd/vmapd/internal/report"

// Write writes the explanation as text for people. Each sentence is a line, for programs that search.
func (e Explanation) Write(t *report.Text) {
	t.Say("from %s", e.From)
	t.Say("to   %s", e.To)
	t.Say("on   %s", e.On)
	t.Say("")
	for i, s := range e.Steps {
		t.Say("%d. %s", i+1, s.Text)
		for _, l := range s.Lines {
			t.Say("   %s", l)
		}
	}
	t.Say("")
	for _, p := range e.Problems {
		t.Say("problem: %s", p)
	}
	for _, n := range e.Next {
		t.Say("next: %s", n)
	}
	if len(e.Next)+len(e.Problems) > 0 {
		t.Say("")
	}
	t.Say("=> %s", e.Conclusion)
}
