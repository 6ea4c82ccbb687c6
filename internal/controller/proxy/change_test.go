// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/config/crd"
	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/probe"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// effect of a change, in the words of the doc comments.
type effect string

const (
	refused effect = "Immutable"
	live    effect = "Live"
	waits   effect = "Waits for a new instance (Drifted)"
)

// fieldChange is a change of one field of a live Proxy, and what shows that it did what the field's doc comment says.
type fieldChange struct {
	effect effect
	// external, or else managed.
	external bool
	// from what spec on; as it is made otherwise where it is nil.
	from func(*v1alpha1.ProxySpec)
	to   func(*v1alpha1.Proxy)
	// says what is refused, or what the condition names.
	says string
	// acts shows a live change.
	acts func(*changes, *v1alpha1.Proxy)
	// has says whether an instance that is made anew has it.
	has func(provider.InstanceSpec) bool
}

// changes is a world whose prober remembers what it was told.
type changes struct {
	*world
	seen *attentive
}

// attentive is a praise that remembers.
type attentive struct {
	praise
	mu       sync.Mutex
	targets  map[string]probe.Target
	policies map[string]probe.Policy
}

func (a *attentive) Watch(key string, t probe.Target, p probe.Policy, known probe.Health) {
	a.mu.Lock()
	a.targets[key], a.policies[key] = t, p
	a.mu.Unlock()
	a.praise.Watch(key, t, p, known)
}

func (a *attentive) of(p *v1alpha1.Proxy) (probe.Target, probe.Policy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.targets[string(p.UID)], a.policies[string(p.UID)]
}

// probed waits until the Proxy is probed in that way.
func probed(is func(probe.Target, probe.Policy) bool) func(*changes, *v1alpha1.Proxy) {
	return func(c *changes, p *v1alpha1.Proxy) {
		c.poll("probed as the spec says now", func() bool { return is(c.seen.of(p)) })
	}
}

func placed(set func(*v1alpha1.Placement)) func(*v1alpha1.Proxy) {
	return func(p *v1alpha1.Proxy) {
		if p.Spec.Placement == nil {
			p.Spec.Placement = &v1alpha1.Placement{}
		}
		set(p.Spec.Placement)
	}
}

func probing(set func(*v1alpha1.Probe)) func(*v1alpha1.Proxy) {
	return func(p *v1alpha1.Proxy) {
		p.Spec.Probe = &v1alpha1.Probe{}
		set(p.Spec.Probe)
	}
}

func fromURL(s *v1alpha1.ProxySpec) {
	s.Placement = &v1alpha1.Placement{Image: &v1alpha1.Image{URL: "https://images.example/a", SHA256: strings.Repeat("a", 64)}}
}

func withUserData(s *v1alpha1.ProxySpec) {
	s.Software = &v1alpha1.Software{UserDataSecretRef: &v1alpha1.SecretReference{Name: "data"}}
}

func withSecret(s *v1alpha1.ProxySpec) {
	s.Auth = &v1alpha1.Auth{SecretRef: v1alpha1.SecretReference{Name: "mine"}}
}

func conditionIs(kind string, status metav1.ConditionStatus, reason string) func(*changes, *v1alpha1.Proxy) {
	return func(c *changes, p *v1alpha1.Proxy) { c.wait(p, reason, has(kind, status, reason)) }
}

// fieldChanges are the changes of all fields of a Proxy's spec.
var fieldChanges = map[string]fieldChange{
	"provider": {effect: refused, to: func(p *v1alpha1.Proxy) { p.Spec.Provider = "private" }, says: "spec.provider is immutable"},

	"external.address": {
		effect: live, external: true, to: func(p *v1alpha1.Proxy) { p.Spec.External.Address = "[2001:db8::8]:8080" },
		acts: func(c *changes, p *v1alpha1.Proxy) {
			c.wait(p, "at the new address", func(p *v1alpha1.Proxy) bool { return p.Status.Endpoint == "[2001:db8::8]:8080" && ready(p) })
			probed(func(t probe.Target, _ probe.Policy) bool { return t.Address == "[2001:db8::8]:8080" })(c, p)
		},
	},
	"external.protocol": {
		effect: live, external: true, to: func(p *v1alpha1.Proxy) { p.Spec.External.Protocol, p.Spec.External.TLS = v1alpha1.ProtocolSOCKS5, nil },
		acts: probed(func(t probe.Target, _ probe.Policy) bool { return t.Protocol == probe.SOCKS5 }),
	},
	"external.tls.caSecretRef.name": {
		effect: live, external: true, to: func(p *v1alpha1.Proxy) { p.Spec.External.TLS.CASecretRef.Name = "other-ca" },
		acts: probed(func(t probe.Target, _ probe.Policy) bool { return t.CA == "other authority" }),
	},
	"external.tls.serverName": {
		effect: live, external: true, to: func(p *v1alpha1.Proxy) { p.Spec.External.TLS.ServerName = "other.example" },
		acts: probed(func(t probe.Target, _ probe.Policy) bool { return t.ServerName == "other.example" }),
	},

	"placement.host": {
		effect: waits, from: func(s *v1alpha1.ProxySpec) { s.Placement = &v1alpha1.Placement{Host: "h1"} },
		to:   placed(func(p *v1alpha1.Placement) { p.Host = "h2" }),
		says: "placement.host: have h1, want h2", has: func(s provider.InstanceSpec) bool { return s.Host == "h2" },
	},
	"placement.image.name": {
		effect: waits, to: placed(func(p *v1alpha1.Placement) { p.Image = &v1alpha1.Image{Name: "large"} }),
		says: "placement.image: have tiny, want large", has: func(s provider.InstanceSpec) bool { return s.Image.Name == "large" },
	},
	"placement.image.url": {
		effect: waits, from: fromURL, to: placed(func(p *v1alpha1.Placement) { p.Image.URL = "https://images.example/b" }),
		says: "want https://images.example/b", has: func(s provider.InstanceSpec) bool { return s.Image.URL == "https://images.example/b" },
	},
	"placement.image.sha256": {
		effect: waits, from: fromURL, to: placed(func(p *v1alpha1.Placement) { p.Image.SHA256 = strings.Repeat("b", 64) }),
		says: "(sha256 bbbb", has: func(s provider.InstanceSpec) bool { return s.Image.SHA256[0] == 'b' },
	},
	"placement.vcpus": {
		effect: waits, to: placed(func(p *v1alpha1.Placement) { p.VCPUs = 3 }),
		says: "placement.vcpus: have 1, want 3", has: func(s provider.InstanceSpec) bool { return s.VCPUs == 3 },
	},
	"placement.memoryMiB": {
		effect: waits, to: placed(func(p *v1alpha1.Placement) { p.MemoryMiB = 768 }),
		says: "placement.memoryMiB: have 512, want 768", has: func(s provider.InstanceSpec) bool { return s.MemoryMiB == 768 },
	},
	"placement.diskSizeGb": {
		effect: waits, to: placed(func(p *v1alpha1.Placement) { p.DiskSizeGb = 9 }),
		says: "placement.diskSizeGb: have 4, want 9", has: func(s provider.InstanceSpec) bool { return s.DiskSizeGiB == 9 },
	},
	"software.type": {
		effect: waits, to: func(p *v1alpha1.Proxy) { p.Spec.Software = &v1alpha1.Software{Type: v1alpha1.SoftwareNone} },
		says: "software.type: have Agent, want None", has: func(s provider.InstanceSpec) bool { return s.Software == provider.SoftwareNone },
	},
	"software.userDataSecretRef.name": {
		effect: waits, from: withUserData, to: func(p *v1alpha1.Proxy) { p.Spec.Software.UserDataSecretRef.Name = "other-data" },
		says: "software.userDataSecretRef: its content changed", has: func(s provider.InstanceSpec) bool { return strings.Contains(s.UserData.Reveal(), "other") },
	},
	"port": {
		effect: waits, to: func(p *v1alpha1.Proxy) { p.Spec.Port = 3129 },
		says: "port: have 3128, want 3129", has: func(s provider.InstanceSpec) bool { return s.Port == 3129 },
	},

	"auth.secretRef.name": {
		effect: live, from: withSecret, to: func(p *v1alpha1.Proxy) { p.Spec.Auth.SecretRef.Name = "other" },
		acts: func(c *changes, p *v1alpha1.Proxy) {
			c.wait(p, "in force", func(p *v1alpha1.Proxy) bool { return p.Status.CredentialsSecret == "other" && ready(p) })
			if !c.provider.of(p.UID).proxy.Accepts("u", "other") {
				c.t.Error("the guest does not have them")
			}
		},
	},
	"credentialsOverlapSeconds": {
		effect: live, from: withSecret,
		to: func(p *v1alpha1.Proxy) { p.Spec.Auth.SecretRef.Name = "other" },
		acts: func(c *changes, p *v1alpha1.Proxy) {
			overlaps := func(p *v1alpha1.Proxy) bool { return p.Status.Credentials.PreviousUntil != nil }
			p = c.wait(p, "overlapping", overlaps)
			none := int32(0)
			c.update(p, func(p *v1alpha1.Proxy) { p.Spec.CredentialsOverlapSeconds = &none })
			c.wait(p, "the overlap ended", func(p *v1alpha1.Proxy) bool { return !overlaps(p) })
		},
	},
	"probe.intervalSeconds": {
		effect: live, to: probing(func(p *v1alpha1.Probe) { p.IntervalSeconds = 77 }),
		acts: probed(func(_ probe.Target, p probe.Policy) bool { return p.Interval == 77*time.Second }),
	},
	"probe.timeoutSeconds": {
		effect: live, to: probing(func(p *v1alpha1.Probe) { p.IntervalSeconds, p.TimeoutSeconds = 60, 17 }),
		acts: probed(func(_ probe.Target, p probe.Policy) bool { return p.Timeout == 17*time.Second }),
	},
	"probe.failureThreshold": {
		effect: live, to: probing(func(p *v1alpha1.Probe) { p.FailureThreshold = 7 }),
		acts: probed(func(_ probe.Target, p probe.Policy) bool { return p.FailureThreshold == 7 }),
	},
	"probe.successThreshold": {
		effect: live, to: probing(func(p *v1alpha1.Probe) { p.SuccessThreshold = 8 }),
		acts: probed(func(_ probe.Target, p probe.Policy) bool { return p.SuccessThreshold == 8 }),
	},
	"expectedExit.ipv4": {
		effect: live, to: func(p *v1alpha1.Proxy) {
			p.Spec.ExpectedExit = &v1alpha1.ExpectedExit{IPv4: []string{"198.51.100.0/24"}}
		},
		acts: conditionIs(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExitMismatch),
	},
	"expectedExit.ipv6": {
		effect: live, external: true, to: func(p *v1alpha1.Proxy) {
			p.Spec.ExpectedExit = &v1alpha1.ExpectedExit{IPv6: []string{"2001:db8:1::/48"}}
		},
		acts: conditionIs(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExitMismatch),
	},
	"mode": {
		effect: live, to: func(p *v1alpha1.Proxy) { p.Spec.Mode = v1alpha1.ModePinned },
		acts: func(c *changes, p *v1alpha1.Proxy) {
			c.wait(p, "seen", func(p *v1alpha1.Proxy) bool { return p.Status.ObservedGeneration == p.Generation })
			m := c.provider.of(p.UID)
			c.provider.change(func() { m.State = provider.StateCrashed })
			c.provider.tell(string(p.UID))
			c.wait(p, "left as it is", has(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDomainDown))
		},
	},
	"cordoned": {
		effect: live, to: func(p *v1alpha1.Proxy) { p.Spec.Cordoned = true },
		acts: conditionIs(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonCordoned),
	},
	"deletionPolicy": {
		effect: live, to: func(p *v1alpha1.Proxy) { p.Spec.DeletionPolicy = v1alpha1.DeletionRetain },
		acts: func(c *changes, p *v1alpha1.Proxy) {
			c.delete(p)
			c.waitGone(p)
			c.provider.change(func() {
				if !c.provider.retained[p.Status.Host+"/"+string(p.UID)] {
					c.t.Error("the instance is not retained")
				}
			})
		},
	},
}

// fieldsOf are the paths of all fields of a type that hold a value of their own.
func fieldsOf(of reflect.Type, path string) []string {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return []string{path}
	}
	var all []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		all = append(all, fieldsOf(of.Field(i).Type, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return all
}

// said is what of it a description says, word for word.
var said = regexp.MustCompile(`Immutable|Live|Waits for a new instance \(Drifted\)`)

func TestEveryFieldSaysWhatItsChangeDoes(t *testing.T) {
	fields := fieldsOf(reflect.TypeFor[v1alpha1.ProxySpec](), "")
	slices.Sort(fields)
	if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(fieldChanges))); diff != "" {
		t.Fatalf("fields without an entry in fieldChanges, and entries without a field:\n%s", diff)
	}
	type schema struct {
		Description string
		Properties  map[string]*schema
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				}
			}
		}
	}
	text, err := crd.Files.ReadFile("egressproxies.dev_proxies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	for field, c := range fieldChanges {
		at, says := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], ""
		for name := range strings.SplitSeq(field, ".") {
			at = at.Properties[name]
			if own := said.FindString(at.Description); own != "" {
				says = own
			}
		}
		if says != string(c.effect) {
			t.Errorf("%s: its doc comment says %q, and the test %q", field, says, c.effect)
		}
	}
}

func newChanges(t *testing.T) *changes {
	seen := &attentive{praise: praise{exits: map[string]netip.Addr{}}, targets: map[string]probe.Target{}, policies: map[string]probe.Policy{}}
	c := &changes{newWorld(t, func(w *world) { w.prober = seen }), seen}
	for name, data := range map[string]map[string]string{
		"mine":       {v1alpha1.SecretKeyUsername: "u", v1alpha1.SecretKeyPassword: "mine"},
		"other":      {v1alpha1.SecretKeyUsername: "u", v1alpha1.SecretKeyPassword: "other"},
		"data":       {keyUserData: "#!/bin/sh\n"},
		"other-data": {keyUserData: "#!/bin/sh\nother\n"},
		"ca":         {keyCA: "authority"},
		"other-ca":   {keyCA: "other authority"},
	} {
		c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, StringData: data})
	}
	return c
}

// start makes the Proxy that a field of is changed.
func (c *changes) start(name string, of fieldChange) *v1alpha1.Proxy {
	return c.made(name, func(s *v1alpha1.ProxySpec) {
		if of.external {
			s.Provider = ""
			withSecret(s)
			s.External = &v1alpha1.ExternalProxy{Address: "[2001:db8::7]:8080", Protocol: v1alpha1.ProtocolHTTPS, TLS: &v1alpha1.ExternalTLS{
				ServerName: "one.example", CASecretRef: &v1alpha1.SecretReference{Name: "ca"},
			}}
		}
		if of.from != nil {
			of.from(s)
		}
	})
}

func TestChangedFieldsActAsTheirDocSays(t *testing.T) {
	world := newChanges(t)
	for field, change := range fieldChanges {
		t.Run(field, func(t *testing.T) {
			w := *world.world
			w.t = t
			c := &changes{&w, world.seen}
			p := c.start(strings.ToLower(strings.ReplaceAll(field, ".", "-")), change)
			switch change.effect {
			case refused:
				stored := p.DeepCopy()
				change.to(p)
				if err := c.client.Patch(t.Context(), p, client.MergeFrom(stored)); err == nil || !strings.Contains(err.Error(), change.says) {
					t.Errorf("got %v, want %q", err, change.says)
				}
			case live:
				c.update(p, change.to)
				change.acts(c, p)
			case waits:
				c.mustWait(p, change)
			}
		})
	}
}

// mustWait shows that a change is kept out of the instance that runs, that the condition names it, and that the next instance has it.
func (c *changes) mustWait(p *v1alpha1.Proxy, change fieldChange) {
	c.t.Helper()
	before := c.provider.of(p.UID)
	c.update(p, change.to)
	p = c.wait(p, "drifted", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonDrifted))
	if text := message(p, v1alpha1.ConditionProvisioned); !strings.Contains(text, change.says) || strings.Contains(text, "; ") {
		c.t.Errorf("the condition names something else than %q: %s", change.says, describe(p))
	}
	if c.provider.of(p.UID) != before || !ready(p) {
		c.t.Errorf("the instance was touched: %s", describe(p))
	}
	if change.has(before.spec) {
		c.t.Error("the instance had it before")
	}
	c.provider.lose(p.UID)
	c.wait(p, "made anew, without drift", func(p *v1alpha1.Proxy) bool {
		return ready(p) && c.provider.of(p.UID) != nil && has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonRunning)(p)
	})
	if now := c.provider.of(p.UID); !change.has(now.spec) {
		c.t.Errorf("the new instance does not have it: %+v", now.Shape)
	}
}

func TestWhatTheProvidersFilePutsIntoASeedDrifts(t *testing.T) {
	w := newWorld(t)
	p := w.made("p", nil)
	none := w.made("none", func(s *v1alpha1.ProxySpec) { s.Port = 3130 })
	reflector := w.file.Reflectors[0]
	for _, change := range []struct {
		says     string
		do, undo func(*config.File)
	}{
		{
			"the entry's destinations, or the reflectors, changed", func(f *config.File) { f.Entries[0].Destinations.Allow = []string{"10.0.0.0/8"} },
			func(f *config.File) { f.Entries[0].Destinations.Allow = nil },
		},
		{
			"the entry's destinations, or the reflectors, changed",
			func(f *config.File) { f.Reflectors = []config.Reflector{reflector, {URL: "http://192.0.2.1:9/"}} },
			func(f *config.File) { f.Reflectors = []config.Reflector{reflector} },
		},
		{
			"the entry's vendorData, userData or installGuestAgent changed", func(f *config.File) { f.Entries[0].InstallGuestAgent = true },
			func(f *config.File) { f.Entries[0].InstallGuestAgent = false },
		},
	} {
		w.configure(change.do)
		for _, one := range []*v1alpha1.Proxy{p, none} {
			one = w.wait(one, "drifted", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonDrifted))
			if text := message(one, v1alpha1.ConditionProvisioned); !strings.Contains(text, change.says) || !ready(one) {
				t.Errorf("want %q: %s", change.says, describe(one))
			}
		}
		w.configure(change.undo)
		w.wait(p, "no drift", has(v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonRunning))
	}
}
