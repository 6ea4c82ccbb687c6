// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

func TestOutcomeOfEveryKind(t *testing.T) {
	want := map[provider.Kind]outcome{
		provider.Transient:    {reason: v1alpha1.ReasonTransient, wait: waitRetry},
		provider.NotFound:     {reason: v1alpha1.ReasonTransient, wait: waitRetry, absent: true},
		provider.Capacity:     {reason: v1alpha1.ReasonCapacity, wait: waitRetry},
		provider.Unauthorized: {reason: v1alpha1.ReasonUnauthorized, wait: waitPeople},
		provider.Permanent:    {reason: v1alpha1.ReasonPermanent, wait: waitPeople},
		provider.Conflict:     {reason: v1alpha1.ReasonConflict, wait: waitPeople, absent: true},
		provider.InProgress:   {reason: v1alpha1.ReasonFetchingImage, wait: waitWork},
	}
	for _, kind := range provider.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			err := &provider.Error{Kind: kind, Host: "h1", Object: "domain d", Message: "says no", Next: "do this"}
			expected, ok := want[kind]
			if !ok {
				t.Fatal("this test does not know the kind: add it")
			}
			expected.message = err.Error()
			if diff := cmp.Diff(expected, outcomeOf(err), cmp.AllowUnexported(outcome{})); diff != "" {
				t.Error(diff)
			}
			for _, part := range []string{"h1", "domain d", "says no", "do this"} {
				if !strings.Contains(outcomeOf(err).message, part) {
					t.Errorf("the message does not say %q: %s", part, outcomeOf(err).message)
				}
			}
		})
	}
	if o := outcomeOf(errors.New("whatever")); o.absent || o.wait != waitRetry {
		t.Errorf("an error nobody classified: %+v", o)
	}
	if o := outcomeOf(&provider.Error{Kind: provider.Permanent, Reason: "NoKVM"}); o.reason != "NoKVM" {
		t.Errorf("the provider's own reason is lost: %+v", o)
	}
}

func TestChoose(t *testing.T) {
	host := func(name string, change func(*provider.HostState)) provider.HostState {
		h := provider.HostState{Name: name, Ready: true, Reason: provider.HostReady, RoomKnown: true, FreeMemoryMiB: 4096, PoolAvailableGiB: 100}
		if change != nil {
			change(&h)
		}
		return h
	}
	full := func(h *provider.HostState) { h.FreeMemoryMiB = 100 }
	down := func(h *provider.HostState) {
		h.Ready, h.Reason, h.Message = false, provider.HostUnreachable, "no route"
	}
	closed := func(h *provider.HostState) { h.Unschedulable = true }
	busy := func(h *provider.HostState) { h.Instances = 5 }
	one := func(h *provider.HostState) { h.Instances, h.MaxInstances = 1, 1 }
	for name, c := range map[string]struct {
		demand demand
		hosts  []provider.HostState
		want   string
		why    []string
	}{
		"the least busy":              {demand{memoryMiB: 512}, []provider.HostState{host("a", busy), host("b", nil)}, "b", nil},
		"the pinned, however busy":    {demand{memoryMiB: 512, pin: "a"}, []provider.HostState{host("a", busy), host("b", nil)}, "a", nil},
		"never one that is not ready": {demand{}, []provider.HostState{host("a", down)}, "", []string{"host a: Unreachable: no route"}},
		"never an unschedulable one":  {demand{}, []provider.HostState{host("a", closed), host("b", busy)}, "b", nil},
		"a pin does not open a host":  {demand{pin: "a"}, []provider.HostState{host("a", closed), host("b", nil)}, "", []string{"schedulable: false"}},
		"one with room":               {demand{memoryMiB: 512}, []provider.HostState{host("a", full), host("b", busy)}, "b", nil},
		"room not known":              {demand{memoryMiB: 512}, []provider.HostState{host("a", func(h *provider.HostState) { h.RoomKnown, h.FreeMemoryMiB = false, 0 })}, "a", nil},
		"a full pool":                 {demand{}, []provider.HostState{host("a", func(h *provider.HostState) { h.PoolAvailableGiB = 0 })}, "", []string{"pool is full"}},
		"one to avoid": {
			demand{avoid: map[string]string{"a": "answered lately"}}, []provider.HostState{host("a", nil), host("b", busy)}, "b", nil,
		},
		"every reason is told": {
			demand{memoryMiB: 512}, []provider.HostState{host("a", full), host("b", down)}, "",
			[]string{"host a: has 100 MiB of memory free, 512 are needed", "host b: Unreachable"},
		},
		"one that takes no more": {
			demand{}, []provider.HostState{host("a", one), host("b", one), host("c", down)}, "",
			[]string{"hosts a, b: has room for 1, and has 1; host c: Unreachable"},
		},
		"no hosts": {demand{}, nil, "", []string{"no hosts"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := choose(c.demand, c.hosts, nil)
			if got != c.want {
				t.Errorf("got %q (%s), want %q", got, why, c.want)
			}
			for _, part := range c.why {
				if !strings.Contains(why, part) {
					t.Errorf("%q does not say %q", why, part)
				}
			}
		})
	}
}

func TestHelpless(t *testing.T) {
	incapable := provider.HostState{Name: "a", Reason: provider.HostIncapable}
	down := provider.HostState{Name: "b", Reason: provider.HostUnreachable}
	lacking := provider.HostState{Name: "d", Ready: true, Reason: provider.HostReady, Lacks: map[string]string{"arm": "architecture aarch64"}}
	closed := provider.HostState{Name: "c", Ready: true, Reason: provider.HostReady, Unschedulable: true}
	for name, c := range map[string]struct {
		demand demand
		hosts  []provider.HostState
		want   bool
	}{
		"each lacks something":             {demand{}, []provider.HostState{incapable}, true},
		"one may come back":                {demand{}, []provider.HostState{incapable, down}, false},
		"the pinned one lacks something":   {demand{pin: "a"}, []provider.HostState{incapable, down}, true},
		"an unschedulable one is no help":  {demand{}, []provider.HostState{incapable, closed}, true},
		"none runs its image":              {demand{image: "arm"}, []provider.HostState{lacking, lacking}, true},
		"one runs its image":               {demand{image: "arm"}, []provider.HostState{lacking, {Name: "e", Ready: true}}, false},
		"they run another image":           {demand{image: "x86"}, []provider.HostState{lacking}, false},
		"there is none where it may go":    {demand{pin: "x"}, []provider.HostState{incapable}, false},
		"all are unschedulable, and ready": {demand{}, []provider.HostState{closed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := helpless(c.demand, c.hosts); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestChooseSpreadsEqualHosts(t *testing.T) {
	hosts := []provider.HostState{{Name: "a", Ready: true}, {Name: "b", Ready: true}, {Name: "c", Ready: true}}
	counts := map[string]int{}
	for i := range 300 {
		uid := time.Unix(int64(i), 0).String()
		host, _ := choose(demand{uid: uid}, hosts, nil)
		if again, _ := choose(demand{uid: uid}, hosts, nil); again != host {
			t.Fatal("the same question has two answers")
		}
		counts[host]++
	}
	for name, n := range counts {
		if n < 50 {
			t.Errorf("host %s got %d of 300", name, n)
		}
	}
}

func TestResolveDefaultsAndURLs(t *testing.T) {
	file := testFile("http://reflector.example", "team")
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}, Spec: v1alpha1.ProxySpec{Provider: "home", Port: 3128}}
	_, shape, wrong := resolve(p, file)
	if wrong != nil {
		t.Fatal(wrong)
	}
	want := provider.Shape{
		Image: provider.Image{Name: "tiny"}, VCPUs: 1, MemoryMiB: 512, DiskSizeGiB: 4, Software: provider.SoftwareAgent, Port: 3128,
		DestinationsSHA256: file.DestinationsSHA256(&file.Entries[0]),
	}
	if diff := cmp.Diff(want, shape); diff != "" {
		t.Error(diff)
	}
	digest := strings.Repeat("a", 64)
	p.Spec.Placement = &v1alpha1.Placement{VCPUs: 2, Image: &v1alpha1.Image{URL: "https://images.example/x.qcow2", SHA256: digest}}
	if _, shape, wrong = resolve(p, file); wrong != nil || shape.Image.SHA256 != digest || shape.VCPUs != 2 {
		t.Errorf("an allowed URL: %+v, %v", shape, wrong)
	}
	p.Spec.Placement.Image.URL = "https://elsewhere.example/x.qcow2"
	if _, _, wrong = resolve(p, file); wrong == nil || wrong.reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(wrong.message, "images.example") {
		t.Errorf("a URL of another host: %v", wrong)
	}
}

func TestResolveWithoutMachines(t *testing.T) {
	file, err := config.Parse([]byte("version: 1\nreflectors: [{url: http://127.0.0.11:8910/}]\nentries:\n- {name: here, type: local}\n- {name: sim, type: simulated, hosts: [{name: a, addresses: 127.20.0.0/24}]}\n"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{Provider: "here", Port: 3128, Placement: &v1alpha1.Placement{Host: "127.0.0.12"}}}
	_, shape, wrong := resolve(p, file)
	if want := (provider.Shape{Software: provider.SoftwareAgent, Port: 3128}); wrong != nil || shape != want {
		t.Errorf("%+v, %v", shape, wrong)
	}
	p.Spec.Placement = &v1alpha1.Placement{VCPUs: 2}
	p.Spec.Software = &v1alpha1.Software{Type: v1alpha1.SoftwareNone}
	if _, _, wrong = resolve(p, file); wrong == nil || !strings.Contains(wrong.message, "remove placement.vcpus, software.type None") {
		t.Errorf("what only a machine can have: %v", wrong)
	}
	p.Spec.Provider, p.Spec.Software = "sim", nil
	if _, shape, wrong = resolve(p, file); wrong != nil || shape.VCPUs != 2 || shape.MemoryMiB != config.DefaultMemoryMiB {
		t.Errorf("%+v, %v", shape, wrong)
	}
	p.Spec.Placement.Image = &v1alpha1.Image{Name: "debian-13"}
	if _, _, wrong = resolve(p, file); wrong == nil || !strings.Contains(wrong.message, "boots no images: remove placement.image") {
		t.Errorf("an image: %v", wrong)
	}
}

func TestDriftsNamesEachField(t *testing.T) {
	want := provider.Shape{Image: provider.Image{Name: "a"}, VCPUs: 1, MemoryMiB: 1, DiskSizeGiB: 1, Software: provider.SoftwareAgent, Port: 1}
	is := provider.Instance{InstanceRef: provider.InstanceRef{Host: "h1"}, Shape: want}
	if got := drifts(want, "", is); len(got) != 0 {
		t.Errorf("nothing drifted: %v", got)
	}
	if got := drifts(want, "h1", is); len(got) != 0 {
		t.Errorf("on the pinned host: %v", got)
	}
	other := provider.Shape{
		Image: provider.Image{URL: "https://x", SHA256: "d"}, VCPUs: 2, MemoryMiB: 2, DiskSizeGiB: 2, Software: provider.SoftwareNone, Port: 2, UserDataSHA256: "u",
	}
	if got := drifts(other, "h2", is); len(got) != 8 {
		t.Errorf("everything drifted, and %d fields are named: %v", len(got), got)
	}
}

func TestVerifyExit(t *testing.T) {
	v4, v6 := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")
	expected := &v1alpha1.ExpectedExit{IPv4: []string{"198.51.100.0/24", "203.0.113.0/24"}}
	for name, c := range map[string]struct {
		exit     netip.Addr
		expected *v1alpha1.ExpectedExit
		want     string
	}{
		"nothing expected":             {v4, nil, v1alpha1.ReasonExitLearned},
		"expected":                     {v4, expected, v1alpha1.ReasonExitExpected},
		"a family that is not checked": {v6, expected, v1alpha1.ReasonExitLearned},
		"unexpected":                   {netip.MustParseAddr("192.0.2.1"), expected, v1alpha1.ReasonExitMismatch},
		"unexpected, IPv6":             {v6, &v1alpha1.ExpectedExit{IPv6: []string{"2001:db8:1::/48"}}, v1alpha1.ReasonExitMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			if _, reason, _ := verifyExit(c.exit, c.expected); reason != c.want {
				t.Errorf("got %s, want %s", reason, c.want)
			}
		})
	}
}

func TestCredentialsOf(t *testing.T) {
	for name, c := range map[string]struct{ username, password, wrong string }{
		"good":              {"user", "pass:word", ""},
		"no username":       {"", "p", "username is missing"},
		"no password":       {"u", "", "password is missing"},
		"colon":             {"u:v", "p", "colon"},
		"newline from echo": {"u", "p\n", "newline"},
		"control":           {"u\x01", "p", "control"},
		"too long":          {"u", strings.Repeat("p", 256), "255"},
	} {
		t.Run(name, func(t *testing.T) {
			_, wrong := credentialsOf(&corev1.Secret{Data: map[string][]byte{"username": []byte(c.username), "password": []byte(c.password)}})
			if (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
				t.Errorf("got %q, want %q", wrong, c.wrong)
			}
		})
	}
}

func TestPolicyOf(t *testing.T) {
	file := config.Probe{Interval: config.Duration(30 * time.Second), Timeout: config.Duration(5 * time.Second), FailureThreshold: 3, SuccessThreshold: 1}
	want := probe.Policy{Interval: 5 * time.Second, Timeout: 5 * time.Second, FailureThreshold: 3, SuccessThreshold: 2}
	if diff := cmp.Diff(want, policyOf(file, &v1alpha1.Probe{IntervalSeconds: 5, SuccessThreshold: 2})); diff != "" {
		t.Error(diff)
	}
}

func TestDelays(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{0: 250 * time.Millisecond, 100 * time.Second: 2 * time.Second, time.Hour: 5 * time.Second} {
		if got := provisionDelay(age); got != want {
			t.Errorf("provisionDelay(%v) = %v, want %v", age, got, want)
		}
	}
	pace := Pace{Retry: time.Second, RetryMax: time.Minute}
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 100: time.Minute} {
		if got := pace.backoff(failures); got != want {
			t.Errorf("backoff(%d) = %v, want %v", failures, got, want)
		}
	}
}

func TestBoundedCutsBetweenRunes(t *testing.T) {
	for shift := range 4 {
		got := bounded(strings.Repeat("x", shift) + strings.Repeat("€", maxMessage))
		if len(got) > maxMessage || len(got) < maxMessage-3 || !utf8.ValidString(got) || !strings.HasSuffix(got, "€...") {
			t.Errorf("shift %d: %d bytes, valid UTF-8 %t", shift, len(got), utf8.ValidString(got))
		}
	}
	if whole := strings.Repeat("x", maxMessage); bounded(whole) != whole {
		t.Error("a message that fits is cut")
	}
}

// notedEvents keeps the notes of events.
type notedEvents struct{ notes []string }

func (e *notedEvents) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(note, args...))
}

func TestWarningsFitIntoAnEvent(t *testing.T) {
	var told notedEvents
	r := &Reconciler{Events: &told}
	r.warn(newPass(&v1alpha1.Proxy{}, Set{}, time.Now()), v1alpha1.ReasonAbandoned, strings.Repeat("é", maxMessage))
	if len(told.notes) != 1 || len(told.notes[0]) > maxMessage {
		t.Errorf("%d notes, the first of %d bytes", len(told.notes), len(told.notes[0]))
	}
}

// noObjects is a client of a cluster that has nothing.
type noObjects struct{ client.Client }

func (noObjects) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

func TestAMissingCALeavesTheProbesAsTheyAre(t *testing.T) {
	scheduler := probe.NewScheduler(nil, 1, func(string) {})
	r := &Reconciler{Client: noObjects{}, Probes: scheduler}
	proxy := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1alpha1.ProxySpec{External: &v1alpha1.ExternalProxy{
		Address: "proxy.example:443", Protocol: v1alpha1.ProtocolHTTPS, TLS: &v1alpha1.ExternalTLS{CASecretRef: &v1alpha1.SecretReference{Name: "ca"}},
	}}}
	proxy.Status.Endpoint = proxy.Spec.External.Address
	p := newPass(proxy, Set{File: &config.File{}}, time.Now())
	p.credentials = &provider.Credentials{Username: "u", Password: provider.NewSecret("p")}
	if goOn, err := r.external(t.Context(), p); goOn || err != nil || p.stalledReason != v1alpha1.ReasonInvalidSecret {
		t.Fatalf("go on %t, %v, stalled %q", goOn, err, p.stalledReason)
	}
	r.probe(p)
	if _, watched := scheduler.Health("u"); watched {
		t.Error("the proxy is probed without the CA that verifies it")
	}
}

func TestProbeReasonsAreTheAPIs(t *testing.T) {
	for ours, theirs := range map[probe.Reason]string{
		probe.Succeeded: v1alpha1.ReasonProbeSucceeded, probe.PortClosed: v1alpha1.ReasonPortClosed, probe.AuthFailed: v1alpha1.ReasonAuthFailed,
		probe.OpenProxy: v1alpha1.ReasonOpenProxy, probe.EgressFailed: v1alpha1.ReasonEgressFailed, probe.ReflectorDown: v1alpha1.ReasonReflectorDown,
	} {
		if string(ours) != theirs {
			t.Errorf("%s is %s in the API", ours, theirs)
		}
	}
	if string(probe.HTTPS) != string(v1alpha1.ProtocolHTTPS) || string(probe.HTTP) != string(v1alpha1.ProtocolHTTP) || string(probe.SOCKS5) != string(v1alpha1.ProtocolSOCKS5) {
		t.Error("the protocols differ")
	}
	if string(provider.SoftwareAgent) != string(v1alpha1.SoftwareAgent) || string(provider.SoftwareCloudInit) != string(v1alpha1.SoftwareCloudInit) ||
		string(provider.SoftwareNone) != string(v1alpha1.SoftwareNone) {
		t.Error("the software types differ")
	}
}
