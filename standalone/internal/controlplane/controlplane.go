// SPDX-License-Identifier: Apache-2.0

// Package controlplane serves the Kubernetes API without anything that runs containers:
// custom resources, namespaces, secrets, configmaps, events, leases, RBAC, service accounts,
// admission and reviews.
package controlplane

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	readyPoll = 25 * time.Millisecond
	// How long a stop waits for a start to be over.
	stopWhileStarting = 20 * time.Second
)

// Server is an API server that is built and not yet running.
type Server struct {
	run      func(context.Context) error
	loopback *rest.Config
	started  atomic.Bool
}

// New builds the server; it answers once Run is called.
func New(ctx context.Context, o Options) (*Server, error) {
	completed, err := completeOptions(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	aggregator, err := buildChain(completed)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	prepared, err := aggregator.PrepareRun()
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return &Server{run: prepared.Run, loopback: aggregator.GenericAPIServer.LoopbackClientConfig}, nil
}

// Run serves until the context ends, then drains requests and closes the listener. Kubernetes
// ends the process when one of its start hooks is cut short, so a stop waits for them.
func (s *Server) Run(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	release := context.AfterFunc(ctx, func() {
		defer stop()
		if s.started.Load() {
			return
		}
		starting, cancel := context.WithTimeout(serving, stopWhileStarting)
		defer cancel()
		// It is stopped either way.
		_ = s.WaitReady(starting)
	})
	defer release()
	if err := s.run(serving); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	return nil
}

// Config is a client configuration for this process, with all rights and no rate limit.
func (s *Server) Config() *rest.Config {
	config := rest.CopyConfig(s.loopback)
	config.QPS = -1
	return config
}

// WaitReady returns nil once the server says that it is ready and the system namespaces
// exist, and an error when the context ends before.
func (s *Server) WaitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		last = checkReady(ctx, client)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("control plane is not ready: %w (last answer: %w)", err, last)
	}
	s.started.Store(true)
	return nil
}

func checkReady(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceSystem, corev1.NamespaceDefault} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}
