// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
	"github.com/egress-proxies/egress-proxies-operator/internal/cloudinit"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/proxyproto"
)

const (
	generatedSuffix = "-credentials"
	userPrefix      = "px-"
	userBytes       = 9
	passwordBytes   = 30
	// keyUserData of a Secret is given to cloud-init.
	keyUserData = "userData"
	// keyCA of a Secret verifies an external proxy's certificate.
	keyCA = "ca.crt"
)

// secretName is the Secret that holds a Proxy's credentials.
func secretName(proxy *v1alpha1.Proxy) string {
	if proxy.Spec.Auth != nil {
		return proxy.Spec.Auth.SecretRef.Name
	}
	return proxy.Name + generatedSuffix
}

// secretNames are all Secrets that a Proxy depends on.
func secretNames(proxy *v1alpha1.Proxy) []string {
	names := []string{secretName(proxy)}
	if software := proxy.Spec.Software; software != nil && software.UserDataSecretRef != nil {
		names = append(names, software.UserDataSecretRef.Name)
	}
	if external := proxy.Spec.External; external != nil && external.TLS != nil && external.TLS.CASecretRef != nil {
		names = append(names, external.TLS.CASecretRef.Name)
	}
	return names
}

// credentials reads the Secrets, and generates the one that nobody named.
func (r *Reconciler) credentials(ctx context.Context, p *pass) (bool, error) {
	name := secretName(p.proxy)
	secret, err := r.secret(ctx, p, name)
	if apierrors.IsNotFound(err) && p.proxy.Spec.Auth == nil {
		secret, err = r.generate(ctx, p.proxy)
	}
	if apierrors.IsNotFound(err) {
		return r.refuseSecret(p, "spec.auth.secretRef: there is no Secret %s in namespace %s; make one of type %s with %s and %s",
			name, p.proxy.Namespace, corev1.SecretTypeBasicAuth, v1alpha1.SecretKeyUsername, v1alpha1.SecretKeyPassword)
	}
	if err != nil {
		return false, err
	}
	if p.proxy.Spec.Auth == nil && !metav1.IsControlledBy(secret, p.proxy) {
		return r.refuseSecret(p, "Secret %s exists and was not made for this Proxy; name it in spec.auth.secretRef to use it, or delete it", name)
	}
	credentials, wrong := credentialsOf(secret)
	if wrong != "" {
		return r.refuseSecret(p, "Secret %s: %s", name, wrong)
	}
	p.credentials, p.secretVersion = &credentials, secret.ResourceVersion
	if p.proxy.Status.Credentials == nil {
		p.proxy.Status.CredentialsSecret = name // nothing else is in force
	}
	return r.readUserData(ctx, p)
}

// refuseSecret says what is wrong with a Secret. A change of it wakes the Proxy.
func (r *Reconciler) refuseSecret(p *pass, format string, args ...any) (bool, error) {
	p.refuse(v1alpha1.ReasonInvalidSecret, fmt.Sprintf(format, args...), r.Pace.Slow)
	return false, nil
}

func (r *Reconciler) secret(ctx context.Context, p *pass, name string) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: p.proxy.Namespace, Name: name}, &secret)
	return &secret, err
}

func (r *Reconciler) readUserData(ctx context.Context, p *pass) (bool, error) {
	software := p.proxy.Spec.Software
	if software == nil || software.UserDataSecretRef == nil {
		return true, nil
	}
	name := software.UserDataSecretRef.Name
	secret, err := r.secret(ctx, p, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	data := secret.Data[keyUserData]
	if err != nil || len(data) == 0 {
		return r.refuseSecret(p, "software.userDataSecretRef: namespace %s needs a Secret %s with the key %s", p.proxy.Namespace, name, keyUserData)
	}
	if wrong := cloudinit.CheckUserData(data); wrong != nil {
		return r.refuseSecret(p, "software.userDataSecretRef: the key %s of Secret %s %s", keyUserData, name, wrong)
	}
	p.userData = provider.NewSecret(string(data))
	return true, nil
}

func (p *pass) userDataSHA256() string {
	data := p.userData.Reveal()
	if data == "" {
		return ""
	}
	digest := sha256.Sum256([]byte(data))
	return hex.EncodeToString(digest[:])
}

// generate makes the credentials of a Proxy that names none. One that exists already, and that the cache does not know yet, is a conflict:
// the pass is repeated.
func (r *Reconciler) generate(ctx context.Context, proxy *v1alpha1.Proxy) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: proxy.Namespace, Name: secretName(proxy), Labels: map[string]string{v1alpha1.LabelProxy: proxy.Name},
		},
		Type: corev1.SecretTypeBasicAuth,
		Data: map[string][]byte{
			v1alpha1.SecretKeyUsername: []byte(userPrefix + randomText(userBytes)),
			v1alpha1.SecretKeyPassword: []byte(randomText(passwordBytes)),
		},
	}
	if err := controllerutil.SetControllerReference(proxy, secret, r.Client.Scheme()); err != nil {
		return nil, err
	}
	err := r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		return nil, apierrors.NewConflict(corev1.Resource("secrets"), secret.Name, err)
	}
	return secret, err
}

// randomText needs no escaping in a URL, a shell or YAML.
func randomText(bytes int) string {
	data := make([]byte, bytes)
	// crypto/rand never fails: it ends the program instead.
	_, _ = rand.Read(data)
	return base64.RawURLEncoding.EncodeToString(data)
}

// credentialsOf are a Secret's credentials, or what is wrong with them, without quoting any of it.
func credentialsOf(secret *corev1.Secret) (provider.Credentials, string) {
	username, password := string(secret.Data[v1alpha1.SecretKeyUsername]), string(secret.Data[v1alpha1.SecretKeyPassword])
	for _, field := range []struct{ key, value string }{{v1alpha1.SecretKeyUsername, username}, {v1alpha1.SecretKeyPassword, password}} {
		switch {
		case field.value == "":
			return provider.Credentials{}, fmt.Sprintf("the key %s is missing or empty", field.key)
		case len(field.value) > proxyproto.MaxCredentialLength:
			return provider.Credentials{}, fmt.Sprintf("the value of %s is longer than %d bytes, which SOCKS5 cannot carry", field.key, proxyproto.MaxCredentialLength)
		case strings.HasSuffix(field.value, "\n"):
			return provider.Credentials{}, fmt.Sprintf("the value of %s ends with a newline (made with echo? use echo -n, or kubectl create secret)", field.key)
		case strings.ContainsFunc(field.value, func(c rune) bool { return c < 0x20 || c == 0x7f }):
			return provider.Credentials{}, fmt.Sprintf("the value of %s contains a control character", field.key)
		}
	}
	if strings.Contains(username, ":") {
		return provider.Credentials{}, "the username contains a colon, which HTTP cannot carry"
	}
	return provider.Credentials{Username: username, Password: provider.NewSecret(password)}, ""
}
