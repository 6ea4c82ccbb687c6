// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Watch says on the channel that something changed in the folder of a file, until ctx ends and wait was called: an editor's new file, and the symbolic
// link that a kubelet swaps, are seen there as well. Where the file system does not tell, it says nothing.
func Watch(ctx context.Context, path string, log *slog.Logger) (changed <-chan struct{}, wait func()) {
	said := make(chan struct{}, 1)
	ended := make(chan struct{})
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(filepath.Dir(path)); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		log.Warn("changes of the providers file are seen late: its folder cannot be watched", "error", err, "within", checkEvery)
		close(ended)
		return said, func() {}
	}
	go func() {
		defer close(ended)
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-watcher.Events:
				select {
				case said <- struct{}{}:
				default: // said already
				}
			case err := <-watcher.Errors:
				log.Warn("watching the folder of the providers file", "error", err)
			case <-ctx.Done():
				return
			}
		}
	}()
	return said, func() { <-ended }
}
