// SPDX-License-Identifier: MIT

// The functions that the library calls back, and what each kind of callback needs of its call.

package moe

// #include <moe_c.h>
import "C"

import (
	"io"
	"sync"
	"unsafe"
)

// Callbacks from the library. `user` refers to the Go value of the current call, or of the object
// that owns it.

type generateCall struct {
	guard
	piece  func(Piece) bool
	logits func(tokens []int32, logits []float32) bool
}

//export moeGoPiece
func moeGoPiece(user unsafe.Pointer, piece *C.moe_piece) (more C.bool) {
	call := referred[*generateCall](user)
	done := call.run(func() { more = C.bool(call.piece(pieceOf(piece))) })
	return C.bool(done) && more
}

//export moeGoLogits
func moeGoLogits(user unsafe.Pointer, tokens *C.int32_t, nTokens C.size_t, logits *C.float, nLogits C.size_t) (more C.bool) {
	call := referred[*generateCall](user)
	done := call.run(func() {
		text, row := lent[int32](tokens, int(nTokens)), lent[float32](logits, int(nLogits))
		more = C.bool(call.logits(text.copy, row.copy))
		row.giveBack()
	})
	return C.bool(done) && more
}

// loan is memory of the library that a callback sees as a copy: a slice may be kept, and the memory
// is gone after the call.
type loan[T any] struct{ library, copy []T }

func lent[T, M any](memory *M, n int) loan[T] {
	library := unsafe.Slice((*T)(unsafe.Pointer(memory)), n)
	return loan[T]{library, append([]T(nil), library...)}
}

// giveBack makes the library use what the callback wrote.
func (l loan[T]) giveBack() { copy(l.library, l.copy) }

type progressCall struct {
	guard
	f func(done, total uint64) bool
}

//export moeGoProgress
func moeGoProgress(user unsafe.Pointer, n, total C.uint64_t, what *C.char) (more C.bool) {
	call := referred[*progressCall](user)
	done := call.run(func() { more = C.bool(call.f(uint64(n), uint64(total))) })
	return C.bool(done) && more
}

//export moeGoLog
func moeGoLog(user unsafe.Pointer, level C.moe_log_level, text *C.char) {
	log := referred[func(LogLevel, string)](user)
	line := C.GoString(text)
	var g guard // nobody waits for it: a panic ends here
	g.run(func() { log(LogLevel(level), line) })
}

// readCall stores the first failure of a source, which may be read in several threads.
type readCall struct {
	source io.ReaderAt
	mu     sync.Mutex
	failed bool
	guard
	err error
}

func (call *readCall) read(data []byte, offset int64) bool {
	var g guard
	var err error
	n := 0
	if g.run(func() { n, err = call.source.ReadAt(data, offset) }) && n == len(data) {
		return true
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	if !call.failed {
		call.failed, call.guard, call.err = true, g, err
	}
	return false
}

// outcome of a call that has read from the source: err, or the source's own error or panic.
func (call *readCall) outcome(err error) error {
	if StatusOf(err) != StatusIO {
		return err
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	call.goOn()
	return causedBy(call.err, err)
}

//export moeGoRead
func moeGoRead(user unsafe.Pointer, offset C.uint64_t, buffer unsafe.Pointer, n C.size_t) C.bool {
	return C.bool(referred[*readCall](user).read(unsafe.Slice((*byte)(buffer), int(n)), int64(offset)))
}

type writeCall struct {
	guard
	w   io.Writer
	err error
}

//export moeGoWrite
func moeGoWrite(user, data unsafe.Pointer, n C.size_t) C.bool {
	call := referred[*writeCall](user)
	done := call.run(func() {
		var written int
		written, call.err = call.w.Write(unsafe.Slice((*byte)(data), int(n)))
		if call.err == nil && written != int(n) {
			call.err = io.ErrShortWrite
		}
	})
	return C.bool(done && call.err == nil)
}

type watcher struct {
	guard
	f func(*RoutingChoices)
}

//export moeGoRouting
func moeGoRouting(user unsafe.Pointer, c *C.moe_routing_choices) C.bool {
	w := referred[*watcher](user)
	return C.bool(w.run(func() { showChoices(w.f, c) }))
}
