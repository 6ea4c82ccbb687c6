// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"time"
)

// Duration is a time.Duration that YAML and JSON write as 30s or 5m.
type Duration time.Duration

// D is the duration as the time package has it.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String is the duration as time.Duration writes it: 30s, 1m30s.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration as String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("must be a duration with its unit, such as 30s or 5m")
	}
	*d = Duration(parsed)
	return nil
}
