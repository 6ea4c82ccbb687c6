// SPDX-License-Identifier: Apache-2.0

package agentapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/egress-proxies/egress-proxies-operator/internal/destination"
)

// ConfigVersion is the version of the configuration file that this package
// reads and writes.
const ConfigVersion = 1

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// Config is the agent's configuration file (JSON). It holds secrets: mode
// 0600.
type Config struct {
	// Version is ConfigVersion.
	Version int `json:"version"`
	// ListenAddress is the address to listen on; absent is all addresses,
	// IPv4 and IPv6.
	ListenAddress netip.Addr `json:"listenAddress,omitzero"`
	// ListenPort is the port for HTTP, SOCKS5 and the control channel, 1 to
	// 65535.
	ListenPort int `json:"listenPort"`
	// ControlKey is the instance's own key.
	ControlKey Key `json:"controlKey"`
	// Credentials are the clients', 1 to MaxCredentials.
	Credentials  []Credential `json:"credentials"`
	Destinations Destinations `json:"destinations,omitzero"`
	Limits       Limits       `json:"limits,omitzero"`
}

// Destinations are the rules of package destination.
type Destinations struct {
	// Allow are networks (CIDR) that may be reached though they are not
	// public.
	Allow []netip.Prefix `json:"allow,omitempty"`
	// Deny are networks (CIDR) that may not be reached though they are.
	Deny []netip.Prefix `json:"deny,omitempty"`
	// Reflectors are host:port targets that may always be reached.
	Reflectors []string `json:"reflectors,omitempty"`
}

// Limits bound what the agent takes on; 0 is the default.
type Limits struct {
	// MaxConnections is how many client connections may be open (8192).
	MaxConnections int `json:"maxConnections,omitempty"`
	// TunnelIdleSeconds ends a tunnel without a byte (3600).
	TunnelIdleSeconds int `json:"tunnelIdleSeconds,omitempty"`
	// DialTimeoutSeconds bounds a dial with its name resolution (15).
	DialTimeoutSeconds int `json:"dialTimeoutSeconds,omitempty"`
	// DrainSeconds is how long tunnels may go on after SIGTERM (30).
	DrainSeconds int `json:"drainSeconds,omitempty"`
}

// Bounds and defaults of Limits.
const (
	defaultMaxConnections     = 8192
	defaultTunnelIdleSeconds  = 3600
	defaultDialTimeoutSeconds = 15
	defaultDrainSeconds       = 30

	maxMaxConnections = 1 << 20
	maxSeconds        = 7 * 24 * 3600
)

// WithDefaults fills in what is 0.
func (l Limits) WithDefaults() Limits {
	for _, item := range []struct {
		value    *int
		fallback int
	}{
		{&l.MaxConnections, defaultMaxConnections},
		{&l.TunnelIdleSeconds, defaultTunnelIdleSeconds},
		{&l.DialTimeoutSeconds, defaultDialTimeoutSeconds},
		{&l.DrainSeconds, defaultDrainSeconds},
	} {
		if *item.value == 0 {
			*item.value = item.fallback
		}
	}
	return l
}

// TunnelIdle is TunnelIdleSeconds as a duration.
func (l Limits) TunnelIdle() time.Duration { return seconds(l.TunnelIdleSeconds) }

// DialTimeout is DialTimeoutSeconds as a duration.
func (l Limits) DialTimeout() time.Duration { return seconds(l.DialTimeoutSeconds) }

// Drain is DrainSeconds as a duration.
func (l Limits) Drain() time.Duration { return seconds(l.DrainSeconds) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// ParseConfig decodes strictly and validates.
func ParseConfig(data []byte) (Config, error) {
	var head struct {
		Version int `json:"version"`
	}
	// The version first: a newer file has fields that the strict decoder
	// would blame instead.
	if err := json.Unmarshal(data, &head); err != nil {
		return Config{}, fmt.Errorf("not a configuration in JSON: %w", describeJSON(err))
	}
	if head.Version != ConfigVersion {
		return Config{}, fmt.Errorf("version %d is not known to this agent, which reads version %d: use the agent that belongs to the operator", head.Version, ConfigVersion)
	}
	var config Config
	if err := decodeStrict(data, &config); err != nil {
		return Config{}, err
	}
	return config, config.Validate()
}

// ReadConfig reads a configuration file.
func ReadConfig(path string) (Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return Config{}, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		return Config{}, err
	}
	if len(data) > maxConfigBytes {
		return Config{}, fmt.Errorf("%s: longer than %d bytes", path, maxConfigBytes)
	}
	config, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Marshal validates the configuration and returns the file's content.
func (c Config) Marshal() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// Validate says everything that is wrong; no error quotes a secret.
func (c Config) Validate() error {
	var errs []error
	if c.Version != ConfigVersion {
		errs = append(errs, fmt.Errorf("version: must be %d, is %d", ConfigVersion, c.Version))
	}
	if c.ListenPort < 1 || c.ListenPort > 65535 {
		errs = append(errs, fmt.Errorf("listenPort: must be 1 to 65535, is %d", c.ListenPort))
	}
	if c.ControlKey.IsZero() {
		errs = append(errs, errors.New("controlKey: missing"))
	}
	if err := ValidateCredentials(c.Credentials); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.Destinations.Policy(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.Limits.validate())...)
}

// Policy makes the destination policy.
func (d Destinations) Policy() (*destination.Policy, error) {
	return destination.NewPolicy(destination.Rules{Allow: d.Allow, Deny: d.Deny, Reflectors: d.Reflectors})
}

func (l Limits) validate() error {
	var errs []error
	for _, item := range []struct {
		name       string
		value, max int
	}{
		{"maxConnections", l.MaxConnections, maxMaxConnections},
		{"tunnelIdleSeconds", l.TunnelIdleSeconds, maxSeconds},
		{"dialTimeoutSeconds", l.DialTimeoutSeconds, maxSeconds},
		{"drainSeconds", l.DrainSeconds, maxSeconds},
	} {
		if item.value < 0 || item.value > item.max {
			errs = append(errs, fmt.Errorf("limits.%s: must be 0 (the default) to %d, is %d", item.name, item.max, item.value))
		}
	}
	return errors.Join(errs...)
}

// digest identifies the configuration's content, whatever its layout.
func (c Config) digest() (string, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// decodeStrict decodes one JSON value without unknown fields.
func decodeStrict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return describeJSON(err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("there is something after the JSON value")
	}
	return nil
}

// describeJSON keeps the decoder from quoting values: they may be secrets.
func describeJSON(err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return fmt.Errorf("%s: must be of another type (%s), at byte %d", wrongType.Field, wrongType.Type, wrongType.Offset)
	}
	return err
}
