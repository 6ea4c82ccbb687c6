// Command seedinit stands in for cloud-init and udev in the tiny test guest: it links every labelled ISO volume
// under /dev/disk/by-label, finds the NoCloud seed by its label "cidata", and does the seed's write_files,
// bootcmd and runcmd. Tests of what cloud-init itself does with a seed belong to the cloud guest.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	byLabel  = "/dev/disk/by-label"
	seedDir  = "/run/seed"
	doneFile = "/var/lib/cloud/instance/boot-finished" // where cloud-init leaves it
	patience = 10 * time.Second
)

func main() {
	console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if err != nil {
		console = os.Stderr
	}
	if err := run(console); err != nil {
		fmt.Fprintln(console, "seedinit:", err)
		os.Exit(1)
	}
}

func run(console io.Writer) error {
	device, err := awaitSeed()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(seedDir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(device, seedDir, "iso9660", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the seed %s: %w", device, err)
	}
	seed, err := readSeed(seedDir)
	if err := errors.Join(err, unix.Unmount(seedDir, 0)); err != nil {
		return err
	}

	if seed.Hostname != "" {
		if err := unix.Sethostname([]byte(seed.Hostname)); err != nil {
			return fmt.Errorf("set the host name %q: %w", seed.Hostname, err)
		}
	}
	err = errors.Join(
		runScript(console, "bootcmd", script(seed.BootCmd)),
		writeFiles("/", seed.WriteFiles),
		runScript(console, "runcmd", script(seed.RunCmd)),
	)
	if err := os.MkdirAll(filepath.Dir(doneFile), 0o755); err != nil {
		return err
	}
	return errors.Join(err, os.WriteFile(doneFile, nil, 0o644))
}

// awaitSeed links the labelled volumes until the seed is among them.
func awaitSeed() (device string, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		labels := volumeLabels()
		for label, device := range labels {
			if err := linkVolume(label, device); err != nil {
				return "", err
			}
		}
		for label, device := range labels {
			if strings.EqualFold(label, "cidata") {
				return device, nil
			}
		}
	}
	return "", fmt.Errorf("no volume labelled cidata within %s", patience)
}

func volumeLabels() map[string]string {
	labels := map[string]string{}
	devices, _ := filepath.Glob("/sys/class/block/*")
	for _, entry := range devices {
		device := filepath.Join("/dev", filepath.Base(entry))
		if label, err := isoLabel(device); err == nil && label != "" {
			labels[label] = device
		}
	}
	return labels
}

func linkVolume(label, device string) error {
	if err := os.MkdirAll(byLabel, 0o755); err != nil {
		return err
	}
	link := filepath.Join(byLabel, strings.ReplaceAll(label, "/", "\\x2f"))
	if err := os.Symlink(device, link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// isoLabel returns the volume identifier of an ISO 9660 file system, or "" where there is none.
func isoLabel(device string) (string, error) {
	const descriptor, identifier, length = 16 * 2048, 40, 32
	file, err := os.Open(device)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var sector [identifier + length]byte
	if _, err := file.ReadAt(sector[:], descriptor); err != nil {
		return "", err
	}
	if string(sector[:6]) != "\x01CD001" {
		return "", nil
	}
	return strings.TrimRight(string(sector[identifier:]), " \x00"), nil
}

func runScript(console io.Writer, name, text string) error {
	if text == "" {
		return nil
	}
	path := filepath.Join("/run", name+".sh")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		return err
	}
	command := exec.Command("/bin/sh", path)
	command.Stdout, command.Stderr = console, console
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
