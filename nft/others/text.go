package others

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Text returns a rule as nft lists it, or its handle where nft has no text. If nft can't list the chain, the error of
// the first rule says why.
func (r *Ruleset) Text(ctx context.Context, l Line) (text string, err error) {
	texts, ok := r.texts[l.Place]
	if !ok {
		texts, err = listed(ctx, l.Place)
		r.texts[l.Place] = texts
	}
	text = cmp.Or(texts[l.Handle], fmt.Sprintf("handle %d", l.Handle))
	if l.comment != "" {
		text += fmt.Sprintf(" comment %q", l.comment)
	}
	return model.OneLine(text), err
}

var (
	// plain are names as nft reads them. It would run what follows a semicolon in an argument.
	plain = regexp.MustCompile(`^[A-Za-z_.][\w./-]*$`)
	// ruleLine is a rule in a listing. Rules of a chain within a rule have more tabs, and the rule's end is a brace.
	ruleLine = regexp.MustCompile(`(?m)^\t\t *([^\t }].*) # handle (\d+)$`)
)

// listed returns the rules of a chain in this thread's network namespace, by their handles. Some versions of nft read
// the elements of all sets first, and begin again if rules change meanwhile.
func listed(ctx context.Context, p Place) (map[uint64]string, error) {
	if !plain.MatchString(p.Table) || !plain.MatchString(p.Chain) {
		return nil, fmt.Errorf("nft does not read the name of %v", p)
	}
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args := []string{"--handle", "--stateless", "--terse", "list", "chain", p.Family, p.Table, p.Chain}
	out, err := exec.CommandContext(ctx, "nft", args...).Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			first, _, _ := strings.Cut(string(failed.Stderr), "\n")
			err = fmt.Errorf("%w: %s", err, first)
		}
		return nil, fmt.Errorf("list %v: %w", p, cmp.Or(ctx.Err(), err))
	}
	texts := map[uint64]string{}
	for _, m := range ruleLine.FindAllStringSubmatch(string(out), -1) {
		handle, _ := strconv.ParseUint(m[2], 10, 64)
		texts[handle] = m[1]
	}
	return texts, nil
}
