// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/egress-proxies/egress-proxies-operator/internal/config"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/kvm2"
	"github.com/egress-proxies/egress-proxies-operator/internal/provider/libvirt"
)

const doctorLong = `Look at hosts as the operator does, step by step, and say of each thing that they need whether it is there, or what to do.

It reads the providers file, and needs neither the operator nor a Kubernetes API. It changes nothing. An argument is the name of an entry or of a host; without
one all hosts are looked at. The exit code is 0 where everything is well, 1 where something is wrong, and 2 where the providers file cannot be used.`

// examineTime bounds the look at one host.
const examineTime = time.Minute

func newDoctor(s streams) *cobra.Command {
	var providers string
	var format output
	cmd := &cobra.Command{
		Use: "doctor [ENTRY|HOST]...", Short: "Look at hosts step by step, and say what to do where something is wrong", Long: doctorLong,
		Example: `  egress-proxies doctor --providers providers.yaml
  egress-proxies doctor --providers providers.yaml attic`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if providers == "" {
				return usageError{errors.New("--providers is required: the file that says where instances are made")}
			}
			file, err := LoadProviders(providers)
			if err != nil {
				return err
			}
			patients, err := choosePatients(file, args)
			if err != nil {
				return usageError{err}
			}
			return examine(cmd.Context(), file, patients, format, s.out)
		},
	}
	cmd.Flags().StringVar(&providers, "providers", "", "the providers `FILE` (required)")
	format.bind(cmd.Flags())
	return cmd
}

// patient is a host to look at.
type patient struct {
	entry config.Entry
	host  string
}

// choosePatients takes the hosts of the entries and hosts named; all where none is.
func choosePatients(file *config.File, names []string) (all []patient, err error) {
	known := map[string]bool{}
	for _, entry := range file.Entries {
		known[entry.Name] = true
		for _, host := range entry.HostNames() {
			known[host] = true
			if len(names) == 0 || slices.Contains(names, entry.Name) || slices.Contains(names, host) {
				all = append(all, patient{entry, host})
			}
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("there is no entry and no host %q; entries: %s", name, strings.Join(file.EntryNames(), ", "))
		}
	}
	return all, nil
}

// finding is what the doctor says, for programs.
type finding struct {
	Entry string `json:"entry"`
	Host  string `json:"host"`
	Topic string `json:"topic"`
	OK    bool   `json:"ok"`
	// Text is what was found, or what is wrong and what to do.
	Text string `json:"text"`
}

// examine looks at each host in turn. Its error says how many things are wrong.
func examine(ctx context.Context, file *config.File, patients []patient, format output, out io.Writer) error {
	all, wrong := []finding{}, 0
	for _, p := range patients {
		if !format.json() {
			fmt.Fprintf(out, "%s, host %s\n", p.entry.Name, p.host)
		}
		err := p.examine(ctx, file, func(f provider.Finding) {
			found := finding{p.entry.Name, p.host, f.Topic, f.Err == nil, f.Detail}
			if f.Err != nil {
				found.Text = f.Err.Error()
				wrong++
			}
			all = append(all, found)
			if !format.json() {
				fmt.Fprintln(out, found.line(colours(out)))
			}
		})
		if err != nil {
			return err
		}
	}
	if format.json() {
		if err := writeJSON(out, all); err != nil {
			return err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d things are not as they should be", wrong, len(all))
	}
	return nil
}

func (f finding) line(coloured bool) string {
	mark, before, after := "ok", "", ""
	if !f.OK {
		mark = "WRONG"
	}
	if !f.OK && coloured {
		before, after = "\x1b[31m", "\x1b[0m"
	}
	return strings.TrimRight(fmt.Sprintf("  %s%-5s%s  %-12s  %s", before, mark, after, f.Topic, f.Text), " ")
}

func (p patient) examine(ctx context.Context, file *config.File, report func(provider.Finding)) error {
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	if p.entry.Type == config.TypeKVM2 {
		return libvirt.Examine(ctx, libvirt.Options{Entry: p.entry, Backend: kvm2.Backends(p.entry.Credentials)}, p.host, report)
	}
	return p.glance(ctx, file, report)
}

// glance says what a provider without parts to look at says of its host.
func (p patient) glance(ctx context.Context, file *config.File, report func(provider.Finding)) error {
	made, err := makeProvider(environment{cluster: "doctor", file: file, log: slog.New(slog.DiscardHandler)}, p.entry)
	if err != nil {
		return fmt.Errorf("entry %s: %w", p.entry.Name, err)
	}
	if closer, ok := made.(provider.Closer); ok {
		defer closer.Close()
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		i := slices.IndexFunc(made.Hosts(), func(h provider.HostState) bool { return h.Name == p.host && h.Reason != provider.HostUnknown })
		if i >= 0 {
			h := made.Hosts()[i]
			f := provider.Finding{Topic: provider.TopicHost, Detail: h.Message}
			if !h.Ready {
				f.Err = errors.New(h.Reason + ": " + h.Message)
			}
			report(f)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("entry %s, host %s: nothing is known of it: %w", p.entry.Name, p.host, context.Cause(ctx))
		}
	}
}
