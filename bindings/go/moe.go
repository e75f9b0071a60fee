// SPDX-License-Identifier: MIT

// Package moe runs Mixture-of-Experts language models with ternary, int8 or four-bit weights: it
// wraps libmoe's C API through cgo. README.md is the introduction, moe_c.h the reference manual.
// Package moe/serve answers many requests at once.
//
// Ownership: Close frees memory at once; otherwise the garbage collector does it later. Children
// reference their model, so objects may be closed in any order. A closed object returns an *Error
// with StatusState.
//
// Goroutines: any number may use an Env, a Model or a Tokenizer; one at a time a Session, a Chat or a
// Layer, and a concurrent call gets StatusState. Cancel and Close may be called anywhere at any
// time. Callbacks run in the goroutine of the call; a panic in one stops the call and continues in its
// caller. The log and an io.ReaderAt may run in any thread and must not call this package. A panic in
// the log ends there; one in an io.ReaderAt continues in OpenReader and Load, and later makes the call
// that reads fail with StatusIO. Callbacks must not end their goroutine (runtime.Goexit, and so
// T.FailNow of package testing).
package moe

/*
#cgo pkg-config: moe
#include <moe_c.h>
*/
import "C"

// Version of the library at run time.
func Version() string { return C.GoString(C.moe_version_string()) }

// names are what a function of the library lists by index.
func names(name func(C.size_t) *C.char) []string {
	var found []string
	for p := name(0); p != nil; p = name(C.size_t(len(found))) {
		found = append(found, C.GoString(p))
	}
	return found
}

// ISAs are the instruction sets built into the library, best first.
func ISAs() []string { return names(func(i C.size_t) *C.char { return C.moe_isa_name(i) }) }

// WeightFormats are the formats that a Layer can be packed in.
func WeightFormats() []string {
	return names(func(i C.size_t) *C.char { return C.moe_weight_format_name(i) })
}

// RouterKinds are the kinds of routers; Session.SetRouter accepts "topk" and "threshold".
func RouterKinds() []string { return names(func(i C.size_t) *C.char { return C.moe_router_kind(i) }) }

// ChatTemplateNames are the built-in chat templates.
func ChatTemplateNames() []string {
	return names(func(i C.size_t) *C.char { return C.moe_chat_template_name(i) })
}

// MemoryInfo is the memory of this machine, or of this process's cgroup if that is smaller.
type MemoryInfo struct {
	TotalBytes, AvailableBytes uint64
	BudgetBytes                uint64 // the largest automatic cap: 15/16 of AvailableBytes
}

// GetMemoryInfo returns StatusUnsupported if the system does not report it.
func GetMemoryInfo() (MemoryInfo, error) {
	var info C.moe_memory_info
	info.struct_size = C.uint32_t(C.sizeof_moe_memory_info)
	var e C.moe_error
	err := check(C.moe_get_memory_info(&info, &e), &e)
	return MemoryInfo{uint64(info.total_bytes), uint64(info.available_bytes), uint64(info.budget_bytes)}, err
}
