package config

// Compare returns the paths of the fields in which two configurations differ, but for those without effect.
func Compare(before, after *Config) (differ []string) {
	compare := func(settings []setting, before, after any) {
		for _, s := range settings {
			if s.field != "" && s.kind != ignored && !sameField(s.field, before, after) {
				differ = append(differ, s.field)
			}
		}
	}
	compare(kubeProxySettings, before.kubeProxy, after.kubeProxy)
	compare(ownSettings, &before.own, &after.own)
	return differ
}
