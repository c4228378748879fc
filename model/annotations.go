package model

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Annotation is an annotation of Services that vmapd reads.
type Annotation struct {
	Name      string
	Sets      string   // what the value is, in words
	Examples  []string // of valid values
	Otherwise string   // what happens without a value, or with an invalid one
	parse     func(to *annotated, value string) (note string, err error)
}

// The names of the annotations that others refer to.
const (
	AnnotationAlgorithm       = "vmapd.io/lb-algorithm"
	AnnotationConnectionGrace = "vmapd.io/connection-grace"
	AnnotationConnectionRetry = "vmapd.io/connection-retry"
)

// Annotations are all annotations. The others of a Service are not read.
var Annotations = [...]Annotation{
	{
		AnnotationAlgorithm, "algorithm that chooses an endpoint",
		[]string{"random", "maglev", "maglev-port"},
		"the configuration decides",
		func(to *annotated, value string) (string, error) {
			a, note, err := ParseAlgorithm(value)
			if err == nil {
				to.algorithm = &a
			}
			return note, err
		},
	},
	{
		AnnotationConnectionGrace,
		"time after which TCP and SCTP connections to a removed endpoint are closed; `0s` is never",
		[]string{"30s"},
		"the configuration decides",
		func(to *annotated, value string) (string, error) {
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return "", fmt.Errorf("%q is not a duration like \"30s\"", value)
			}
			to.connectionGrace = &d
			return "", nil
		},
	},
	{
		AnnotationConnectionRetry,
		"whether a connection without an answer within a second gets another endpoint, `true` or `false`",
		[]string{"true", "false"},
		"the configuration decides",
		func(to *annotated, value string) (string, error) {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return "", fmt.Errorf("%q is neither \"true\" nor \"false\"", value)
			}
			to.connectionRetry = &on
			return "", nil
		},
	},
	{
		"vmapd.io/outlier-detection",
		"none has an effect: earlier versions had outlier detection",
		[]string{"true"},
		"ignored",
		func(*annotated, string) (string, error) {
			return "", errors.New("there is no outlier detection any more")
		},
	},
}

// annotated has the values of a Service's annotations; nil is none.
type annotated struct {
	algorithm       *Algorithm
	connectionGrace *time.Duration
	connectionRetry *bool
}
