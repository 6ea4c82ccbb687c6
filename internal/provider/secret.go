// SPDX-License-Identifier: Apache-2.0

package provider

import "log/slog"

const redacted = "[redacted]"

// Secret is a string that no formatting verb, logger or encoder shows. Reveal gives it to the one place that needs it.
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal is the value itself.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (Secret) String() string { return redacted }

// GoString hides the value from %#v.
func (Secret) GoString() string { return redacted }

// LogValue hides the value from log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the value from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
