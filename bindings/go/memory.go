// SPDX-License-Identifier: MIT

// C memory for the structs of a call, and conversion of slices and strings.

package moe

/*
#include <stdlib.h>
#include <string.h>
#include <moe_c.h>
*/
import "C"

import (
	"fmt"
	"math"
	"runtime/cgo"
	"strings"
	"unsafe"
)

// arena is C memory for one call or one object: structs that the library reads must not point to
// Go memory.
type arena struct {
	blocks  []unsafe.Pointer
	handles []cgo.Handle
}

func (a *arena) free() {
	for _, block := range a.blocks {
		C.free(block)
	}
	for _, h := range a.handles {
		h.Delete()
	}
	a.blocks, a.handles = nil, nil
}

func (a *arena) bytes(n uintptr) unsafe.Pointer {
	block := C.malloc(C.size_t(n) + 1) // never NULL: Go ends the process first
	C.memset(block, 0, C.size_t(n)+1)
	a.blocks = append(a.blocks, block)
	return block
}

// put copies values into C memory; NULL for none.
func put[T any](a *arena, values ...T) *T {
	if len(values) == 0 {
		return nil
	}
	p := (*T)(a.bytes(unsafe.Sizeof(values[0]) * uintptr(len(values))))
	copy(unsafe.Slice(p, len(values)), values)
	return p
}

// floats: NULL for nil.
func (a *arena) floats(values []float32) *C.float { return (*C.float)(put(a, values...)) }

// ref is a pointer by which callbacks find a Go value.
func (a *arena) ref(value any) unsafe.Pointer {
	h := cgo.NewHandle(value)
	a.handles = append(a.handles, h)
	return unsafe.Pointer(put(a, h))
}

func referred[T any](user unsafe.Pointer) T { return (*(*cgo.Handle)(user)).Value().(T) }

// text: NULL for "".
func (a *arena) text(s, what string) (*C.char, error) {
	if s == "" {
		return nil, nil
	}
	return a.given(s, what)
}

func (a *arena) given(s, what string) (*C.char, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, failed(StatusArgument, fmt.Sprintf("%s: contains a zero byte: %q", what, s))
	}
	return (*C.char)(unsafe.Pointer(put(a, append([]byte(s), 0)...))), nil
}

// option is a text among the options of a call.
type option struct {
	target  **C.char
	s, what string
}

// texts sets each target, and stops at the first error.
func (a *arena) texts(options ...option) error {
	for _, o := range options {
		p, err := a.text(o.s, o.what)
		if err != nil {
			return err
		}
		*o.target = p
	}
	return nil
}

func (a *arena) list(texts []string, what string) (**C.char, C.int32_t, error) {
	pointers := make([]*C.char, 0, len(texts))
	for i, s := range texts {
		p, err := a.given(s, fmt.Sprintf("%s[%d]", what, i))
		if err != nil {
			return nil, 0, err
		}
		pointers = append(pointers, p)
	}
	n, err := count(len(texts), what)
	return put(a, pointers...), n, err
}

// count converts a length to the library's int32_t.
func count(n int, what string) (C.int32_t, error) {
	if n < 0 || n > math.MaxInt32 {
		return 0, failed(StatusRange, fmt.Sprintf("%s: %d is out of range", what, n))
	}
	return C.int32_t(n), nil
}

// first is the address of a slice's memory, NULL where there is none.
func first[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

func tokensOf(tokens []int32) *C.int32_t { return (*C.int32_t)(first(tokens)) }

func floatsOf(values []float32) *C.float { return (*C.float)(first(values)) }

func flag(on bool) C.int32_t {
	if on {
		return 1
	}
	return 0
}

// filled is the result of a call with (buffer, capacity, length); extra: elements after the result.
func filled[T any](guess, extra int, call func(buffer *T, capacity C.size_t, n *C.size_t) error) ([]T, error) {
	var n C.size_t
	buffer := make([]T, guess+64)
	err := call(&buffer[0], C.size_t(len(buffer)), &n)
	if StatusOf(err) == StatusTooLong && int(n)+extra > len(buffer) {
		buffer = make([]T, int(n)+extra)
		err = call(&buffer[0], C.size_t(len(buffer)), &n)
	}
	if err != nil {
		return nil, err
	}
	return buffer[:n], nil
}

func filledText(call func(buffer *C.char, capacity C.size_t, n *C.size_t) error) (string, error) {
	text, err := filled(256, 1, call)
	if err != nil {
		return "", err
	}
	return goText(first(text), C.size_t(len(text))), nil
}

func goText(data *C.char, n C.size_t) string {
	if data == nil || n == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(unsafe.Pointer(data)), int(n)))
}
