// Package config makes one value of all settings: kube-proxy's flags and configuration file, and vmapd's own.
//
//	--config FILE        KubeProxyConfiguration ─┐
//	flags of kube-proxy ─────────────────────────┤  defaults     one
//	--vmapd-config FILE  VmapdConfiguration ─────┼─ validation ─> Config
//	flags of vmapd ──────────────────────────────┘               └─ Notes: lines for the log
//
// With --config, the flags of kube-proxy that have a field in the file are ignored, as by kube-proxy; a note names each
// that was given. The flags of vmapd always apply, and override its file.
//
// Nothing is ignored in silence: a field without effect is read, checked and, if it is set, named in a [Note]. The
// tables in configuration.md describe every field and flag; settings.go reads them, and has defaults and checks.
package config
