// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"
)

// discardTimeout bounds the clean-up after a failed fetch, which goes on when the fetch's own context has ended.
const discardTimeout = 30 * time.Second

// Sink is where one fetch puts one image. Its methods are called one after another. Errors that are *Error keep their kind.
type Sink interface {
	// Write stores length bytes of r under a name that is new and that nobody uses yet.
	Write(ctx context.Context, r io.Reader, length int64, info Info) error
	// Publish makes what was written visible, in one step.
	Publish(ctx context.Context, result Result) error
	// Discard removes what Write made, and nothing else; it is called after Write or Publish failed, or the content was found wrong.
	Discard(ctx context.Context) error
}

// Result describes a fetched image.
type Result struct {
	Info
	// SHA256 of the file as served, in lower-case hexadecimal.
	SHA256 string
	// Bytes is the file's length.
	Bytes int64
}

// Fetch brings a source to a sink: it opens the source, looks at its header, writes and hashes, compares the digest, and publishes.
// Where a step fails, nothing is published, and what was written is discarded. report, if not nil, is called with the bytes that the
// sink took so far, from the goroutine that reads.
func (o *Opener) Fetch(ctx context.Context, source Source, sink Sink, report func(done, total int64)) (Result, error) {
	body, length, err := o.Open(ctx, source)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = body.Close() }()

	header := make([]byte, min(length, HeaderBytes))
	if _, err := io.ReadFull(body, header); err != nil {
		return Result{}, err
	}
	info, err := inspect(header, source, length)
	if err != nil {
		return Result{}, err
	}
	content := &meter{from: io.MultiReader(bytes.NewReader(header), body), hash: sha256.New(), total: length, report: report}
	result, err := write(ctx, source, sink, content, info)
	if err == nil {
		err = sink.Publish(ctx, result)
	}
	if err != nil {
		return Result{}, discard(ctx, sink, err)
	}
	return result, nil
}

func inspect(header []byte, source Source, length int64) (Info, error) {
	info, err := Inspect(header)
	var ours *Error
	if errors.As(err, &ours) {
		return Info{}, &Error{Kind: ours.Kind, Message: fmt.Sprintf("image source %s: %s", source, ours.Message), Next: ours.Next, Err: err}
	}
	if source.Format != "" && source.Format != info.Format {
		return Info{}, permanent("correct the format, or leave it out", "image source %s: the content is %s, not %s", source, info.Format, source.Format)
	}
	if info.Format == Raw {
		info.VirtualSize = length
	}
	return info, nil
}

// write gives the sink the whole content, and compares the digest of what the sink took.
func write(ctx context.Context, source Source, sink Sink, content *meter, info Info) (Result, error) {
	err := sink.Write(ctx, content, content.total, info)
	if err := content.err(); err != nil {
		return Result{}, err // the sink may know no more than that its stream broke
	}
	if err != nil {
		return Result{}, err
	}
	if content.done != content.total {
		return Result{}, transient(nil, "image source %s: only %d of %d bytes were stored", source, content.done, content.total)
	}
	digest := hex.EncodeToString(content.hash.Sum(nil))
	if !source.matches(digest) {
		return Result{}, permanent("correct the sha256, or find out who changed the image", "image source %s: expected sha256 %s, and what was served has %s", source, source.SHA256, digest)
	}
	return Result{Info: info, SHA256: digest, Bytes: content.total}, nil
}

func discard(ctx context.Context, sink Sink, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	if left := sink.Discard(ctx); left != nil {
		return &Error{Kind: KindOf(err), Message: fmt.Sprintf("%v (what was stored of it could not be removed, and is collected later: %v)", err, left), Err: err}
	}
	return err
}
