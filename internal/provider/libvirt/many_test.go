// SPDX-License-Identifier: Apache-2.0

package libvirt_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt/libvirttest"
)

func TestManyAtOnce(t *testing.T) {
	t.Run("Creates at one time do not get into each other's way: the daemon rescans no pool while it makes a volume there", func(t *testing.T) {
		synctest.Test(t, manyAtOnce)
	})
	t.Run("a Create asks the host no more often than it must", func(t *testing.T) { synctest.Test(t, callsOfOne) })
}

func manyAtOnce(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	var making, met atomic.Int32
	r.daemon.SetFaults(func(_ context.Context, method, _ string) error {
		switch method {
		case "CreateVolume":
			making.Add(1)
			time.Sleep(50 * time.Millisecond)
			making.Add(-1)
		case "RefreshPool":
			time.Sleep(5 * time.Millisecond)
			met.Add(making.Load())
		}
		return nil
	}, nil)
	const creates = 10
	ended := make(chan error, creates)
	start := time.Now()
	for i := range creates {
		go func() {
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			_, err := r.Create(t.Context(), libvirttest.Spec(hostName, uuid.NewString(), ""))
			ended <- err
		}()
	}
	for range creates {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := met.Load(); n != 0 {
		t.Errorf("%d times a pool was rescanned while a volume was made there", n)
	}
	// One after the other they would take more than 1 s.
	if took := time.Since(start); took > 600*time.Millisecond {
		t.Errorf("%d Creates took %v", creates, took)
	}
}

func callsOfOne(t *testing.T) {
	r := newRig(t, libvirttest.Config{})
	r.mustMake(t)
	r.uid = uuid.NewString()
	before := len(r.daemon.Calls())
	if _, err := r.Create(t.Context(), r.spec()); err != nil {
		t.Fatal(err)
	}
	var methods []string
	for _, call := range r.daemon.Calls()[before:] {
		method, _, _ := strings.Cut(call, " ")
		methods = append(methods, method)
	}
	const want = "[Domain Pool CheckBridge Volumes Volume Volume RefreshPool CreateVolume Volumes CreateVolume Upload UploadDone Define Start]"
	if got := fmt.Sprint(methods); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
