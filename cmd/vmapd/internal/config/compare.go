package config

import (
	"encoding/json"
	"fmt"
)

// Compare returns the paths of the fields in which two configurations differ, but for those without effect.
func Compare(before, after *Config) (differ []string) {
	compare := func(settings []setting, before, after any) {
		for _, s := range settings {
			if s.field != "" && s.fate != ignored && !sameField(s.field, before, after) {
				differ = append(differ, s.field)
			}
		}
	}
	compare(kubeProxySettings, before.kubeProxy, after.kubeProxy)
	compare(ownSettings, &before.own, &after.own)
	return differ
}

// Differences says in which fields of kube-proxy's configuration two configurations differ.
func Differences(kubeProxy, vmapd *Config) (list []string) {
	for _, s := range kubeProxySettings {
		if s.field == "" || sameField(s.field, kubeProxy.kubeProxy, vmapd.kubeProxy) {
			continue
		}
		list = append(list, fmt.Sprintf("%s: kube-proxy has %s, vmapd would have %s", s.field, fieldText(kubeProxy.kubeProxy, s.field), fieldText(vmapd.kubeProxy, s.field)))
	}
	return list
}

func fieldText(c any, field string) string {
	text, err := json.Marshal(fieldByPath(c, field).Interface())
	if err != nil {
		return "an odd value"
	}
	return string(text)
}
