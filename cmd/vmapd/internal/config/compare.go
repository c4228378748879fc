package config

// Compare returns the paths of the fields in which two configurations differ: those that a
// running daemon applies, and those that need a new start. Fields without effect are in
// neither.
func Compare(before, after *Config) (inPlace, atRestart []string) {
	for _, list := range []struct {
		settings      []setting
		before, after any
	}{
		{kubeProxySettings, before.kubeProxy, after.kubeProxy},
		{ownSettings, &before.own, &after.own},
	} {
		for _, s := range list.settings {
			if s.field == "" || s.change == unchangeable || sameField(s.field, list.before, list.after) {
				continue
			}
			if s.change == live {
				inPlace = append(inPlace, s.field)
			} else {
				atRestart = append(atRestart, s.field)
			}
		}
	}
	return inPlace, atRestart
}
