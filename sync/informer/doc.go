// Package informer is the source of objects that watches a cluster, through client-go's
// informers.
//
// It asks the API server for no more than this node needs: the label and field selectors
// leave headless Services, and those of other proxies, on the server. Objects are
// stripped before they are stored. While the server is away, what is known stays.
package informer
