package config_test

import "testing"

// Lists of the API server are plain if a gate says so, by client-go's name or by the server's.
func TestGatesEndStreamedLists(t *testing.T) {
	for _, tt := range []struct {
		in   files
		args []string
		want bool
	}{
		{files{}, nil, false},
		{files{}, []string{"--feature-gates=WatchList=true,WatchListClient=true"}, false},
		{files{}, []string{"--feature-gates=WatchList=false"}, true},
		{files{}, []string{"--feature-gates=WatchListClient=false"}, true},
		{files{proxy: "featureGates: {WatchListClient: false}\n"}, nil, true},
	} {
		if got := tt.in.mustLoad(t, tt.args...).PlainLists(); got != tt.want {
			t.Errorf("%v %v: plain lists %v, want %v", tt.in, tt.args, got, tt.want)
		}
	}
}
