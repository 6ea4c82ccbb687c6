// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// shutdownTime bounds the wait for calls that are under way when a server ends.
const shutdownTime = 2 * time.Second

// Serve serves an API to Clients until ctx ends, then returns nil. It owns listener; no goroutine is left when it returns.
func Serve(ctx context.Context, listener net.Listener, api API) error {
	calls, endCalls := context.WithCancel(context.Background())
	defer endCalls()
	server := &http.Server{
		Handler: handler(api), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return calls },
		ErrorLog: log.New(io.Discard, "", 0), // clients that went away are worth no line
	}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(stopped)
		endCalls() // watches never end by themselves
		limited, cancel := context.WithTimeout(context.Background(), shutdownTime)
		defer cancel()
		if server.Shutdown(limited) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(listener)
	if end() {
		return err
	}
	<-stopped
	return nil
}

// handler answers each request of wire.go.
func handler(api API) http.Handler {
	routes := http.NewServeMux()
	for path, do := range map[string]func(context.Context, request) (answer, error){
		pathAttach: func(ctx context.Context, r request) (answer, error) {
			if r.Description == nil {
				return answer{}, errIncomplete
			}
			return answer{}, api.Attach(ctx, r.Owner, *r.Description)
		},
		pathCreate: func(ctx context.Context, r request) (answer, error) {
			if r.Spec == nil {
				return answer{}, errIncomplete
			}
			return oneInstance(api.Create(ctx, r.Owner, r.Spec.spec(r.Ref)))
		},
		pathGet:    func(ctx context.Context, r request) (answer, error) { return oneInstance(api.Get(ctx, r.Owner, r.Ref)) },
		pathDelete: func(ctx context.Context, r request) (answer, error) { return answer{}, api.Delete(ctx, r.Owner, r.Ref) },
		pathRetain: func(ctx context.Context, r request) (answer, error) { return answer{}, api.Retain(ctx, r.Owner, r.Ref) },
		pathList: func(ctx context.Context, r request) (answer, error) {
			all, err := api.List(ctx, r.Owner)
			return answer{Instances: all}, err
		},
		pathLeftovers: func(ctx context.Context, r request) (answer, error) {
			all, err := api.Leftovers(ctx, r.Owner, r.Ref.Host)
			return answer{Leftovers: all}, err
		},
		pathReclaim: func(ctx context.Context, r request) (answer, error) {
			all, err := api.Reclaim(ctx, r.Owner, r.Ref.Host, r.Leftovers, r.DryRun)
			return answer{Reclaimed: all}, err
		},
		pathInstances: func(ctx context.Context, _ request) (answer, error) {
			all, err := api.Instances(ctx)
			return answer{Records: all}, err
		},
		pathFaults: func(ctx context.Context, _ request) (answer, error) {
			rules, err := api.Faults(ctx)
			return answer{Rules: rules}, err
		},
		pathSetFault: func(ctx context.Context, r request) (answer, error) {
			if r.Rule == nil {
				return answer{}, errIncomplete
			}
			return answer{}, api.SetFault(ctx, *r.Rule)
		},
		pathClearFaults: func(ctx context.Context, r request) (answer, error) {
			count, err := api.ClearFaults(ctx, r.Fault)
			return answer{Count: count}, err
		},
	} {
		routes.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { respond(w, r, do) })
	}
	routes.HandleFunc("POST "+pathWatch, func(w http.ResponseWriter, r *http.Request) { watch(w, r, api) })
	return routes
}

var errIncomplete = errors.New("the request lacks what the call is about")

func oneInstance(i provider.Instance, err error) (answer, error) { return answer{Instance: &i}, err }

// readRequest does not quote a request that cannot be read: it may hold secrets.
func readRequest(w http.ResponseWriter, r *http.Request) (asked request, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(&asked); err != nil {
		http.Error(w, "the request cannot be read: it is of another version, or too long", http.StatusBadRequest)
		return request{}, false
	}
	return asked, true
}

func respond(w http.ResponseWriter, r *http.Request, do func(context.Context, request) (answer, error)) {
	asked, ok := readRequest(w, r)
	if !ok {
		return
	}
	a, err := do(r.Context(), asked)
	if err != nil {
		a = answer{Error: errorToWire(err), Reclaimed: a.Reclaimed}
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(a)
}

// watch sends an answer for each event, as one line, and at the end the reason for it.
func watch(w http.ResponseWriter, r *http.Request, api API) {
	asked, ok := readRequest(w, r)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	send := func(a answer) {
		_ = lines.Encode(a)
		_ = flush.Flush()
	}
	err := api.Watch(r.Context(), asked.Owner, func(e Event) { send(answer{Event: &e}) })
	send(answer{Error: errorToWire(err)})
}
