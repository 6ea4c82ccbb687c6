// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"
	"testing"

	"golang.org/x/crypto/ssh"
)

func TestCiphers(t *testing.T) {
	supported := ssh.SupportedAlgorithms().Ciphers
	for hardware, first := range map[bool]string{true: ssh.CipherAES128GCM, false: ssh.CipherChaCha20Poly1305} {
		got := orderCiphers(slices.Clone(supported), hardware)
		if got[0] != first {
			t.Errorf("with hardware for AES: %v; the first is %s", hardware, got[0])
		}
		if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(supported))) {
			t.Errorf("%q are not all of %q", got, supported)
		}
	}
}
