# The lines of a table that "nft -j list table" prints, to be sorted and compared. They don't have what may differ
# between a table that was loaded at once and one that grew: handles, counters, remembered clients, chains that nothing
# leads to, which endpoint has which slot, and timeout policies, which have the node's settings and are named by them.

# in_chain names the chain that an object is or is in.
def in_chain: "\(.family) \(.chain // .name)";

# targets are the chains that a jump or goto leads to.
def targets: .family as $family | .. | objects | .jump, .goto | objects | "\($family) \(.target)";

# used adds to some chains those that maps, and rules of used chains, lead to. Others stay for a while, so that a batch
# needs not to wait for packets that are in them.
def used($all):
  . as $before
  | (. + [$all[] | select(.kind != "rule" or (in_chain | IN($before[]))) | targets] | unique)
  | if . == $before then . else used($all) end;

# elements are those that are no remembered client, which goes away by itself. Where the last part of the key is an
# integer, it is the slot of an endpoint: those of a Service are in the order of their values.
def elements:
  ((.type | arrays | length > 1 and last == "integer") // false) as $slotted
  | [.elem[]? | if type == "array" then {key: .[0], value: .[1]} else {key: .} end
    | ((.key | objects | .elem) // {}) as {expires: $expires, val: $value}
    | select($expires == null) | if $slotted then .key = ($value // .key).concat else . end]
  | if $slotted then
      group_by(.key[:-1])[] | {service: .[0].key[:-1], slots: (map(.key[-1]) | sort), values: (map(.value) | sort)}
    else .[] end;

[.nftables[] | to_entries[] | select(.key != "metainfo") | {kind: .key} + .value | del(.handle)
  | walk(if type == "object" and has("counter") then .counter = null else . end)
  | walk(if type == "object" and (."ct timeout" | type) == "string"
      then ."ct timeout" |= sub("-[0-9a-f]{8}$"; "") else . end)
  ] as $all
| ([$all[] | select(.kind == "chain" and .hook != null) | in_chain] | unique | used($all)) as $used
| ($all | map(select(.kind == "rule")) | group_by(in_chain)[] | select(.[0] | in_chain | IN($used[]))
    | to_entries[] | [(.value | in_chain), "rule", .key, .value.expr]),
  ($all[] | select(.kind == "chain") | select(in_chain | IN($used[]))),
  ($all[] | select(.kind == "table") | {family, kind, name}),
  ($all[] | select(.kind | IN("rule", "chain", "table", "ct timeout") | not)
    | del(.elem), ("\(.family) \(.kind) \(.name)" as $name | elements | [$name, .]))
