// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

func TestBatch(t *testing.T) {
	t.Run("what is written arrives, in order", func(t *testing.T) {
		ours, theirs := net.Pipe()
		b := newBatch(ours)
		var want []byte
		go func() {
			defer b.Close()
			for i := range 300 {
				piece := bytes.Repeat([]byte{byte(i)}, i*i)
				want = append(want, piece...)
				if n, err := b.Write(piece); n != len(piece) || err != nil {
					t.Errorf("wrote %d, %v", n, err)
				}
			}
			for range 2 * batchSize / 4 { // more than is lost by Close
				_, _ = b.Write(make([]byte, 4))
			}
		}()
		got, err := io.ReadAll(theirs)
		if err != nil || !bytes.HasPrefix(got, want) {
			t.Errorf("%d bytes arrived, %v", len(got), err)
		}
	})
	t.Run("a little is on its way at once", func(t *testing.T) {
		ours, theirs := net.Pipe()
		b := newBatch(ours)
		defer b.Close()
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(theirs, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("Close frees a writer that is stuck", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ours, _ := net.Pipe()
			b := newBatch(ours)
			ended := make(chan error, 1)
			go func() {
				_, err := b.Write(make([]byte, 4*batchSize))
				ended <- err
			}()
			synctest.Wait()
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, errBatchClosed) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("a connection that breaks fails the next write", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			b := newBatch(ours)
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("got %v", err)
			}
		})
	})
}
