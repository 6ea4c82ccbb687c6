// SPDX-License-Identifier: Apache-2.0

//go:build live

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
)

// picture is an image in a file of this machine.
type picture struct {
	path   string
	sha256 string
	// stored is how many bytes of it are data.
	stored int64
	holes  bool
}

const (
	// dataExtent and holeExtent alternate in the sparse image, from data on.
	dataExtent = 4 << 20
	holeExtent = 12 << 20
)

func randomImage(path string, length int64) (picture, error) {
	return makeImage(path, length, length, 0)
}

func sparseImage(path string, length int64) (picture, error) {
	p, err := makeImage(path, length, dataExtent, holeExtent)
	p.holes = true
	return p, err
}

// makeImage makes a file of extents of data that cannot be compressed, each with a hole behind it, and reads it once: it is in memory afterwards.
func makeImage(path string, length, data, hole int64) (p picture, err error) {
	f, err := os.Create(path)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	noise := rand.NewChaCha8([32]byte{})
	for at := int64(0); at < length; at += data + hole {
		n := min(data, length-at)
		if _, err := io.Copy(io.NewOffsetWriter(f, at), io.LimitReader(noise, n)); err != nil {
			return p, err
		}
		p.stored += n
	}
	if err := f.Truncate(length); err != nil {
		return p, err
	}
	if err := f.Sync(); err != nil { // so that it is not written while the tools are measured
		return p, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, length)); err != nil {
		return p, err
	}
	p.path, p.sha256 = path, hex.EncodeToString(sum.Sum(nil))
	return p, nil
}
