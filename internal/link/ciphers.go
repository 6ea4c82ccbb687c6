// SPDX-License-Identifier: Apache-2.0

package link

import (
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

// Ciphers that a link offers, best first: those that this machine's processor does by itself, or ChaCha20 where it does none.
func Ciphers() []string { return orderCiphers(ssh.SupportedAlgorithms().Ciphers, hardwareAES()) }

func orderCiphers(supported []string, hardware bool) []string {
	first := []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM, ssh.CipherChaCha20Poly1305}
	if !hardware {
		first = []string{ssh.CipherChaCha20Poly1305, ssh.CipherAES128GCM, ssh.CipherAES256GCM}
	}
	rank := func(cipher string) int {
		if i := slices.Index(first, cipher); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(supported, func(a, b string) int { return rank(a) - rank(b) })
	return supported
}

// hardwareAES: the processor has instructions for AES and for GCM's multiplication.
func hardwareAES() bool {
	return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ || cpu.ARM64.HasAES && cpu.ARM64.HasPMULL || cpu.S390X.HasAES && cpu.S390X.HasGHASH
}
