// SPDX-License-Identifier: Apache-2.0

// Package cluster is what this installation is called, and the key that its agents trust: both are made once, kept in the cluster,
// and only read from then on. Losing or changing them would orphan every instance, so nothing here ever overwrites.
package cluster

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;create
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create

// DefaultNamespace holds the operator's own objects.
const DefaultNamespace = "egress-proxies-system"

// Names and keys of the objects that keep the identity.
const (
	ConfigMapName   = "egress-proxies-cluster"
	ConfigMapKey    = "id"
	ControlKeyName  = "egress-proxies-control-key"
	ControlKeyKey   = "key"
	controlKeyBytes = 32
	derivedIDLength = 12
	kubeSystem      = "kube-system"
	controlKeyInfo  = "egress-proxies control v1 "
)

// Identity is what this installation is called, and the key that its agents trust.
type Identity struct {
	// ID stands in every mark and name on every host: 6 to 32 of a-z and 0-9.
	ID     string
	master []byte
}

// New makes an Identity of its parts: the cluster ID, and the control master key of 32 bytes.
func New(id string, master []byte) (Identity, error) {
	if err := provider.CheckCluster(id); err != nil {
		return Identity{}, err
	}
	if len(master) != controlKeyBytes {
		return Identity{}, fmt.Errorf("the control key has %d bytes instead of %d", len(master), controlKeyBytes)
	}
	return Identity{ID: id, master: master}, nil
}

// ControlKey is the key of one Proxy's control channel: 32 bytes, derived from the master key and the Proxy's UID.
func (i Identity) ControlKey(uid string) (provider.Secret, error) {
	key, err := hkdf.Key(sha256.New, i.master, nil, controlKeyInfo+strings.ToLower(strings.TrimSpace(uid)), controlKeyBytes)
	if err != nil {
		return provider.Secret{}, fmt.Errorf("derive the control key: %w", err)
	}
	return provider.NewSecret(string(key)), nil
}

// Load reads the identity from a namespace, which it makes when missing, and makes what is not there yet, unless a Proxy
// has an instance already. The client must not read from a cache, and must know Proxies. Of several operators that start at once, all end with the same identity.
func Load(ctx context.Context, c client.Client, namespace string) (Identity, error) {
	if err := ensureNamespace(ctx, c, namespace); err != nil {
		return Identity{}, err
	}
	id, err := loadID(ctx, c, namespace)
	if err != nil {
		return Identity{}, err
	}
	master, err := loadControlKey(ctx, c, namespace)
	if err != nil {
		return Identity{}, err
	}
	identity, err := New(id, master)
	if err != nil {
		return Identity{}, fmt.Errorf("ConfigMap %s/%s and Secret %s/%s: %w; restore them from a backup: instances on the hosts carry the old values",
			namespace, ConfigMapName, namespace, ControlKeyName, err)
	}
	return identity, nil
}

func ensureNamespace(ctx context.Context, c client.Client, name string) error {
	err := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		err = c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

func loadID(ctx context.Context, c client.Client, namespace string) (string, error) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName}}
	fill := func() error {
		err := neverUsed(ctx, c, "create it with the ID that the names of the instances on the hosts show, under the key "+ConfigMapKey+
			"; with another ID every instance would be orphaned, and made a second time")
		if err != nil {
			return err
		}
		var system corev1.Namespace
		if err := c.Get(ctx, client.ObjectKey{Name: kubeSystem}, &system); err != nil {
			return fmt.Errorf("read the UID of namespace %s, which the cluster ID is made from: %w", kubeSystem, err)
		}
		id := strings.ReplaceAll(strings.ToLower(string(system.UID)), "-", "")
		if len(id) < derivedIDLength {
			return fmt.Errorf("namespace %s has the UID %q, too short to make a cluster ID from", kubeSystem, system.UID)
		}
		object.Immutable = new(true)
		object.Data = map[string]string{ConfigMapKey: id[:derivedIDLength]}
		return nil
	}
	if err := getOrCreate(ctx, c, object, fill); err != nil {
		return "", fmt.Errorf("cluster ID in ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}
	return object.Data[ConfigMapKey], nil
}

func loadControlKey(ctx context.Context, c client.Client, namespace string) ([]byte, error) {
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ControlKeyName}}
	fill := func() error {
		err := neverUsed(ctx, c, fmt.Sprintf("create it with %d random bytes under the key %s, and make every Proxy anew; "+
			"a guest that runs obeys no other key than the one it was made with", controlKeyBytes, ControlKeyKey))
		if err != nil {
			return err
		}
		key := make([]byte, controlKeyBytes)
		if _, err := rand.Read(key); err != nil {
			return err
		}
		object.Type = corev1.SecretTypeOpaque
		object.Immutable = new(true)
		object.Data = map[string][]byte{ControlKeyKey: key}
		return nil
	}
	if err := getOrCreate(ctx, c, object, fill); err != nil {
		return nil, fmt.Errorf("control key in Secret %s/%s: %w", namespace, ControlKeyName, err)
	}
	return object.Data[ControlKeyKey], nil
}

// neverUsed refuses to make what instances on the hosts were made with already: it was lost, and has to be restored. withoutBackup says
// what to do where it cannot be.
func neverUsed(ctx context.Context, c client.Reader, withoutBackup string) error {
	var proxies v1alpha1.ProxyList
	err := c.List(ctx, &proxies)
	if meta.IsNoMatchError(err) {
		return nil // a cluster that does not know the kind has none
	}
	if err != nil {
		return fmt.Errorf("look for Proxies that have instances: %w", err)
	}
	for i := range proxies.Items {
		if p := &proxies.Items[i]; p.Status.Host != "" {
			return fmt.Errorf("it is missing, though Proxy %s/%s has an instance on host %s that was made with it; restore it from a backup, "+
				"then start the operator again; without a backup: %s", p.Namespace, p.Name, p.Status.Host, withoutBackup)
		}
	}
	return nil
}

// getOrCreate reads object, or fills and creates it. The creation decides between several that do so at once: the others read.
func getOrCreate(ctx context.Context, c client.Client, object client.Object, fill func() error) error {
	key := client.ObjectKeyFromObject(object)
	err := c.Get(ctx, key, object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	err = c.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return c.Get(ctx, key, object)
	}
	return err
}
