package nft

// Ahead takes from a batch what goes ahead of any, see Split.
func (b *Batch) Ahead(n int) []*Batch { return append(b.aheadChains(), b.aheadElements(n)...) }
