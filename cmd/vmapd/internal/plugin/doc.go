// Package plugin runs a subcommand of vmapd beside the daemon of a node, through the API server: it is
// what "kubectl vmapd" does.
//
//	--node, or the node of the Service or pod ──> vmapd's pod there ──> kubectl exec
//
// All requests are made by kubectl, which started the plugin: so they have its context, its credentials and their
// plugins. client-go's remotecommand would add 0.6 MB to the daemon's program, and three modules.
package plugin
