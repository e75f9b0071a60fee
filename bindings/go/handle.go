// SPDX-License-Identifier: MIT

// A counted pointer of the library, so that objects may be closed in any order and during calls.

package moe

import (
	"context"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// handle is a pointer of the library that is counted: by its Go object, by each child, and by each
// call in progress. It is freed when its count is zero, and only then releases its parent.
type handle struct {
	what    string
	pointer unsafe.Pointer
	free    func(unsafe.Pointer)

	mu      sync.Mutex
	parent  *handle
	holders int
	closed  bool
}

// newHandle: parent may be nil; it is held by a call in progress.
func newHandle(what string, pointer unsafe.Pointer, parent *handle, free func(unsafe.Pointer)) *handle {
	if parent != nil {
		parent.hold()
	}
	return &handle{what: what, pointer: pointer, free: free, parent: parent, holders: 1}
}

func (h *handle) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holders++
}

// acquire keeps the pointer valid until release.
func (h *handle) acquire() (unsafe.Pointer, error) {
	if h == nil {
		return nil, failed(StatusState, "the object was never opened")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, failed(StatusState, "the "+h.what+" is closed")
	}
	h.holders++
	return h.pointer, nil
}

func (h *handle) release() {
	h.mu.Lock()
	h.holders--
	last, parent := h.holders == 0, h.parent
	h.mu.Unlock()
	if !last {
		return
	}
	h.free(h.pointer)
	if parent != nil {
		parent.release()
	}
}

// close may be called any number of times. A call in progress completes normally.
func (h *handle) close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	was := h.closed
	h.closed = true
	h.mu.Unlock()
	if !was {
		h.release()
	}
}

// adopt makes another handle the parent; it is held by a call in progress.
func (h *handle) adopt(parent *handle) {
	parent.hold()
	h.mu.Lock()
	old := h.parent
	h.parent = parent
	h.mu.Unlock()
	old.release()
}

// single lets one goroutine in at a time.
type single struct{ mu sync.Mutex }

func (s *single) enter(what string) error {
	if s.mu.TryLock() {
		return nil
	}
	return failed(StatusState, "the "+what+" is in use")
}

func (s *single) leave() { s.mu.Unlock() }

// guard stores the first panic of callbacks, which cannot pass through C, until the call ends.
type guard struct {
	panicked bool
	value    any
}

// run reports whether f completed; after a panic f is not called.
func (g *guard) run(f func()) (done bool) {
	if g.panicked {
		return false
	}
	defer func() {
		if !done {
			g.panicked, g.value = true, recover()
		}
	}()
	f()
	return true
}

// goOn repanics if a callback panicked.
func (g *guard) goOn() {
	if g.panicked {
		value := g.value
		g.panicked, g.value = false, nil
		panic(value)
	}
}

// during makes a call that a context can end. A cancel before the call has begun has no effect, so
// it is repeated.
func during(ctx context.Context, cancel func(), call func() error) error {
	if err := ctx.Err(); err != nil {
		return &Error{StatusCancelled, err.Error(), err}
	}
	if ctx.Done() == nil {
		return call()
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		for {
			cancel()
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	err := call()
	close(ended)
	<-stopped // before anything else begins in the session
	if e, ok := err.(*Error); ok && e.Status == StatusCancelled {
		e.cause = ctx.Err()
	}
	return err
}

// collected closes an object when it is garbage collected.
func collected[T interface{ Close() }](object T) T {
	runtime.SetFinalizer(object, func(o T) { o.Close() })
	return object
}
