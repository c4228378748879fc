package iptables

// A Difference describes different behaviour of the iptables and the nftables backends.
type Difference struct {
	What string
	Why  string
}

// Differences lists all known differences. A single new connection without a history is never
// concerned: it always goes where model.Decide says.
var Differences = []Difference{
	{
		"the algorithms maglev and maglev-port choose at random; a client comes back to its endpoint only with session affinity",
		"no match hashes a source address",
	},
	{
		"session affinity is kept for the last 100 clients of an endpoint",
		"xt_recent holds so many addresses in a list (its parameter ip_list_tot)",
	},
	{
		"a client that was sent to different endpoints by frontends with different traffic policies comes back to any of them",
		"each endpoint has a list of clients for itself, and the lists know nothing of one another",
	},
	{
		"on a kernel without xt_recent there is no session affinity, and without xt_sctp service ports of SCTP are refused; other Services are served",
		"one rule that the kernel refuses would refuse all rules of the table",
	},
	{
		"with session affinity, a new connection passes a rule for each endpoint",
		"a rule looks into one list, by its name",
	},
	{
		"a connection is refused after it was routed; without a route to the address its client learns that there is none",
		"in the nat table nothing can be refused",
	},
	{
		"while a batch is applied, a connection may for a moment be refused instead of forwarded, or the reverse",
		"each table comes into force for itself",
	},
	{
		"DropInvalid drops all INVALID packets that are forwarded, also those that belong to no Service",
		"every such packet would meet one rule for each endpoint, and every new pod would add a rule",
	},
	{
		"a bit of the packet mark is used",
		"only the nat rule that chooses knows by which frontend a connection came",
	},
	{
		"forwarded packets that are marked, or established, are accepted, and pass no later rule of the FORWARD chain",
		"kube-proxy does so, and nodes with a FORWARD policy of DROP rely on it",
	},
	{
		"connections to a Service are not counted",
		"a rule's counter begins at 0 when its chain is written anew, which each changed endpoint does",
	},
	{
		"no packets take the fast path, whatever --fast-path says",
		"flowtables belong to nftables",
	},
}
