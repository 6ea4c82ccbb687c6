package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

type seed struct {
	Hostname   string    `yaml:"-"`
	WriteFiles []file    `yaml:"write_files"`
	BootCmd    []command `yaml:"bootcmd"`
	RunCmd     []command `yaml:"runcmd"`
}

type file struct {
	Path        string `yaml:"path"`
	Content     string `yaml:"content"`
	Encoding    string `yaml:"encoding"`
	Permissions string `yaml:"permissions"`
}

// command is one line of shell: a string item as it is, a list item with each of its words quoted.
type command string

func (c *command) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*c = command(node.Value)
		return nil
	}
	var words []string
	if err := node.Decode(&words); err != nil {
		return fmt.Errorf("line %d: a command is a string or a list of strings: %w", node.Line, err)
	}
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	*c = command(strings.Join(words, " "))
	return nil
}

func readSeed(directory string) (seed, error) {
	metaData, err := os.ReadFile(filepath.Join(directory, "meta-data"))
	if err != nil {
		return seed{}, err
	}
	userData, err := os.ReadFile(filepath.Join(directory, "user-data"))
	if err != nil {
		return seed{}, err
	}
	return parseSeed(metaData, userData)
}

func parseSeed(metaData, userData []byte) (seed, error) {
	var meta struct {
		Hostname string `yaml:"local-hostname"`
	}
	if err := yaml.Unmarshal(metaData, &meta); err != nil {
		return seed{}, fmt.Errorf("meta-data: %w", err)
	}
	var parsed seed
	switch {
	case bytes.HasPrefix(userData, []byte("#cloud-config")):
		if err := yaml.Unmarshal(userData, &parsed); err != nil {
			return seed{}, fmt.Errorf("user-data: %w", err)
		}
	case bytes.HasPrefix(userData, []byte("#!")):
		parsed.WriteFiles = []file{{Path: "/run/user-data.sh", Content: string(userData), Permissions: "0700"}}
		parsed.RunCmd = []command{"/run/user-data.sh"}
	case len(bytes.TrimSpace(userData)) > 0:
		return seed{}, errors.New("user-data is neither #cloud-config nor a script: use the cloud guest for it")
	}
	parsed.Hostname = meta.Hostname
	return parsed, nil
}

func script(commands []command) string {
	if len(commands) == 0 {
		return ""
	}
	lines := make([]string, 0, len(commands)+1)
	lines = append(lines, "#!/bin/sh")
	for _, command := range commands {
		lines = append(lines, string(command))
	}
	return strings.Join(lines, "\n") + "\n"
}

func writeFiles(root string, files []file) error {
	var errs []error
	for _, file := range files {
		if err := file.write(root); err != nil {
			errs = append(errs, fmt.Errorf("write_files %s: %w", file.Path, err))
		}
	}
	return errors.Join(errs...)
}

func (f file) write(root string) error {
	content, err := f.decode()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if f.Permissions != "" {
		bits, err := strconv.ParseUint(f.Permissions, 8, 12)
		if err != nil {
			return fmt.Errorf("permissions: %w", err)
		}
		mode = fs.FileMode(bits).Perm()
	}
	path := filepath.Join(root, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode) // the umask, or an older file, may have made it another
}

func (f file) decode() ([]byte, error) {
	switch strings.ToLower(f.Encoding) {
	case "", "text/plain":
		return []byte(f.Content), nil
	case "b64", "base64":
		return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), ""))
	default:
		return nil, fmt.Errorf("encoding %q is not known here: use b64, or the cloud guest", f.Encoding)
	}
}
