// SPDX-License-Identifier: Apache-2.0

// Package provider is the seam between the controllers and the code that makes instances.
//
// # The contract
//
// One Provider serves one entry of the providers file, with all of its hosts. Package providertest holds every provider to what
// follows; no provider is registered without passing it.
//
//   - Identity. An instance is named by the cluster ID and the Proxy's UID, and by nothing else: whoever knows both finds it, on any
//     host, after any crash. A mark on the instance says whose it is.
//   - Ownership. A call changes an instance only after it has read the instance's mark and found there the provider's own cluster and
//     entry and the UID it was asked about. Anything else of that name is a Conflict, and stays as it is to the byte.
//   - Create is idempotent: called again with the same spec, after any failure, on a half-made instance or on a whole one, it goes on
//     from what it finds and ends at one running instance. It never makes a second.
//   - Create does not wait for long work. Fetching an image or the agent is background work, one per host and image; until it is done
//     Create returns an InProgress error that carries the progress. A Watcher wakes the Proxies that wait.
//   - Get reads. It returns NotFound only when the host itself said that there is nothing of that name; a broken link, an ended
//     context or a daemon that is restarting is another error.
//   - Delete is called until it returns NotFound, and removes whatever of the instance is left, known from the identity alone: a
//     domain without volumes, volumes without a domain. Called on nothing it returns NotFound. It needs no Secret, no image and no
//     memory. With nil the removal was accepted and has to be confirmed by another call.
//   - List is complete, or an error. It returns what carries this cluster's and entry's mark, retained instances included.
//   - Context. A call whose context ends returns soon and alone: no other call ends with it, and the shared connection stays.
//   - Errors are *Error, of one of the kinds below. Foreign error codes do not leave the provider. Messages name the host and the
//     object, and say what to do; they never hold a secret or a URL with userinfo.
//   - Every method may be called from many goroutines at once, for the same instance too.
package provider
