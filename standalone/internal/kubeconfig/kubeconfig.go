// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig writes the file by which clients reach the server.
package kubeconfig

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/egress-proxies/egress-proxies-operator/standalone/internal/datadir"
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
	if err := datadir.WriteFile(file, content); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}
