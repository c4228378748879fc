package config

// Compare returns the fields in which two configurations differ, by path: those that a
// running daemon applies, and those that the next start applies. What means nothing here
// is in neither.
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
