// Command benchcheck reads what benchstat prints about two versions, and fails if the second is worse.
//
//	benchstat -format csv base.txt head.txt | benchcheck [-worse 10]
//
// It prints a line for each benchmark that is worse by more than a tenth, as far as benchstat takes the difference for
// significant. For units of a rate, such as B/s, less is worse; for all others, such as sec/op, more is.
package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

func main() {
	limit := flag.Float64("worse", 10, "by how much, in percent, a benchmark may be worse")
	flag.Parse()
	worse, compared, err := check(os.Stdin, *limit)
	for _, line := range worse {
		fmt.Println("worse:", line)
	}
	fmt.Printf("%d figures compared, %d worse by more than %v %%\n", compared, len(worse), *limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchcheck:", err)
	}
	if err != nil || len(worse) > 0 {
		os.Exit(1)
	}
}

// check returns the benchmarks that are worse, and how many figures there are. It is an error if there are none.
func check(in io.Reader, limit float64) (worse []string, compared int, err error) {
	table := csv.NewReader(in)
	table.FieldsPerRecord = -1 // each unit has a table of its own, and lines about the machine have one field
	pkg, unit, change := "", "", -1
	for {
		row, err := table.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		if name, ok := strings.CutPrefix(row[0], "pkg: "); ok {
			pkg, change = name[strings.LastIndex(name, "/")+1:], -1
		}
		if i := find(row, "vs base"); i > 1 {
			unit, change = row[1], i
			continue
		}
		if change < 0 || len(row) <= change || row[0] == "" || row[0] == "geomean" || row[change] == "" {
			continue
		}
		compared++
		percent, err := strconv.ParseFloat(strings.TrimSuffix(row[change], "%"), 64)
		if err != nil {
			continue // "~": no significant difference, or "?": nothing to compare with
		}
		if strings.HasSuffix(unit, "/s") {
			percent = -percent
		}
		if percent > limit {
			worse = append(worse, fmt.Sprintf("%s %s, %s: %s (%s)", pkg, row[0], unit, row[change], strings.Join(row[change+1:], " ")))
		}
	}
	if compared == 0 {
		return nil, 0, errors.New("no benchmark is in both versions")
	}
	return worse, compared, nil
}

func find(row []string, field string) int {
	for i, f := range row {
		if f == field {
			return i
		}
	}
	return -1
}
