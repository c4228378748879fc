// Package config makes one value of everything that an administrator sets: kube-proxy's
// flags and configuration file, and what vmapd has besides.
//
//	--config FILE        KubeProxyConfiguration ─┐
//	flags of kube-proxy ─────────────────────────┤  defaults     one
//	--vmapd-config FILE  VmapdConfiguration ─────┼─ validation ─> Config
//	flags of vmapd ──────────────────────────────┘               └─ Notes: what start must say
//
// With --config, the flags of kube-proxy that have a field in the file do not count, as
// with kube-proxy; each that was given is named. The flags of vmapd always count, and go
// before its file.
//
// Nothing is ignored in silence. A field that means nothing here is read, checked and
// named in a [Note] if it is set; the table in settings.go says of every field and flag
// what becomes of it, and configuration.md beside the command is that table.
package config
