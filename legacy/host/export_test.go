package host

// Look looks once, as Run does.
func (w *LegacyWatch) Look() error { return w.look() }

// Miscount makes the watch expect one rule more in each table.
func (w *LegacyWatch) Miscount() {
	for _, left := range w.left {
		for table := range left.count {
			left.count[table]++
		}
	}
}

// Break lets looks fail from now on.
func (w *LegacyWatch) Break() error { return w.families[0].names.Close() }
