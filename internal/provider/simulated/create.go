// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"

	"github.com/egress-proxies/egress-proxies-operator/internal/agentapi"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// Create makes the instance, or has it run where it does not.
func (w *World) Create(ctx context.Context, o Owner, spec provider.InstanceSpec) (provider.Instance, error) {
	c, uid, err := locate(o, spec.InstanceRef)
	if err == nil {
		err = checkSpec(spec)
	}
	if err != nil {
		return provider.Instance{}, err
	}
	c.proxy, spec.UID = spec.Name, uid
	if err := w.enter(ctx, c); err != nil {
		return provider.Instance{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed() {
		return provider.Instance{}, ended(ctx, c.host)
	}
	i, err := w.own(c, uid)
	if err != nil {
		return provider.Instance{}, err
	}
	if i == nil {
		return w.make(c, spec)
	}
	return w.adopt(c, i, spec)
}

// adopt goes on from an instance that exists.
func (w *World) adopt(c call, i *instance, spec provider.InstanceSpec) (provider.Instance, error) {
	switch {
	case !i.goneAt.IsZero():
		return provider.Instance{}, &provider.Error{Kind: provider.Transient, Host: c.host, Object: objectOf(c.name), Message: "it is being removed"}
	case i.over == provider.StateCrashed:
		w.log.Info("instance replaced", "host", c.host, "instance", c.name, "reason", i.overWhy)
		w.forget(i)
		return w.make(c, spec)
	case i.over == provider.StateStopped:
		w.start(i)
	case i.now.state == provider.StatePaused:
		return provider.Instance{}, &provider.Error{
			Kind: provider.Transient, Reason: string(provider.StatePaused), Host: c.host, Object: objectOf(c.name), Message: i.now.reason,
		}
	}
	return i.view(), nil
}

// make makes an instance that does not exist.
func (w *World) make(c call, spec provider.InstanceSpec) (provider.Instance, error) {
	if err := w.mayMake(c, spec); err != nil {
		return provider.Instance{}, err
	}
	address, err := w.takeAddress(c, spec.Port)
	if err != nil {
		return provider.Instance{}, err
	}
	i := &instance{
		key: key{c.host, c.name}, owner: c.owner, uid: spec.UID, namespace: spec.Namespace, proxyName: spec.Name, shape: spec.Shape,
		agentVersion: w.version, created: w.clock.Now(), address: address,
		credentials: []agentapi.Credential{{Username: spec.Credentials.Username, Password: spec.Credentials.Password.Reveal()}},
	}
	copy(i.controlKey[:], spec.ControlKey.Reveal())
	delete(w.attempts, i.key)
	w.instances[i.key], w.taken[address] = i, i.key
	w.log.Info("instance made", "host", c.host, "instance", c.name, "proxy", spec.Namespace+"/"+spec.Name, "address", address, "port", spec.Port)
	w.start(i)
	w.tell(c.owner, "")
	return i.view(), nil
}

// mayMake says why an instance cannot be made, or not yet.
func (w *World) mayMake(c call, spec provider.InstanceSpec) error {
	if err := agentapi.ValidateCredentials([]agentapi.Credential{{Username: spec.Credentials.Username, Password: spec.Credentials.Password.Reveal()}}); err != nil {
		return permanent(c.host, "the credentials cannot be used: "+err.Error(), "correct the Secret")
	}
	if len(spec.ControlKey.Reveal()) != agentapi.KeySize {
		return permanent(c.host, fmt.Sprintf("the control key does not have %d bytes", agentapi.KeySize), "restart the operator")
	}
	k, object := key{c.host, c.name}, objectOf(c.name)
	tried := w.attempts[k]
	if tried == nil {
		tried = &attempt{since: w.clock.Now()}
		w.attempts[k] = tried
	}
	tried.count++
	faults := w.faultsOf(c.owner, c.host, c.proxy)
	switch {
	case faults[config.FaultHostIncapable]:
		e := faulty(provider.Permanent, c.host, object, config.FaultHostIncapable, "the host lacks what an instance needs")
		e.Reason = provider.HostIncapable
		return e
	case faults[config.FaultNoRoom]:
		return faulty(provider.Capacity, c.host, object, config.FaultNoRoom, "the host has no room")
	case faults[config.FaultNameTaken]:
		return faulty(provider.Conflict, c.host, object, config.FaultNameTaken, "somebody else's instance has this name; it is left alone")
	case faults[config.FaultCreateFails]:
		return faulty(provider.Permanent, c.host, object, config.FaultCreateFails, "the host refuses the definition")
	case faults[config.FaultCreateFailsTwice] && tried.count <= 2:
		return faulty(provider.Transient, c.host, object, config.FaultCreateFailsTwice, "the host answers with an internal error")
	case faults[config.FaultSlowImage]:
		if err := w.imageOnItsWay(c, spec.UID, tried); err != nil {
			return err
		}
	}
	return w.hasRoom(c)
}

// imageOnItsWay is the progress of a slow image, or nil once it is there.
func (w *World) imageOnItsWay(c call, uid string, tried *attempt) error {
	passed := w.clock.Now().Sub(tried.since)
	if passed >= slowImageTime {
		return nil
	}
	if tried.count == 1 {
		w.clock.AfterFunc(slowImageTime, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tell(c.owner, uid)
		})
	}
	e := faulty(provider.InProgress, c.host, objectOf(c.name), config.FaultSlowImage, "its image is on its way")
	e.Progress, e.Next = int(100*passed/slowImageTime), ""
	return e
}

// hasRoom counts the instances of all owners.
func (w *World) hasRoom(c call) error {
	count := 0
	for k := range w.instances {
		if k.host == c.host {
			count++
		}
	}
	if capacity := w.hosts[c.host].Capacity; count >= capacity {
		return &provider.Error{
			Kind: provider.Capacity, Host: c.host, Object: objectOf(c.name), Message: fmt.Sprintf("the host has room for %d instances, and has %d", capacity, count),
			Next: "delete Proxies, or raise the host's capacity in the providers file",
		}
	}
	return nil
}
