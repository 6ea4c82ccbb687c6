// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig writes the file by which clients reach the server.
package kubeconfig

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const name = "egress-standalone"

// Credentials are PEM.
type Credentials struct {
	CA, Cert, Key []byte
}

// Write replaces the file whole, with mode 0600: who can read it is the administrator.
func Write(file, server string, credentials Credentials) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: credentials.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: credentials.Cert, ClientKeyData: credentials.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	next := file + ".new"
	// A file of the same name that somebody else may read would keep its mode.
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}
