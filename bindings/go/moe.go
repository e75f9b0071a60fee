// Package moe runs Mixture-of-Experts language models with ternary, int8 or four-bit weights: it
// wraps libmoe's C API through cgo. README.md is the introduction, moe_c.h the manual of what each
// number means.
//
// Ownership: Close gives memory back at once; without it the garbage collector does, later. Whatever
// is made from a model keeps it, so that things can be closed in any order. What is closed gives an
// *Error with StatusState.
//
// Goroutines: an Env, a Model and a Tokenizer may be used from any number of them. A Session, a Chat
// and a Layer are for one at a time, and a second one gets StatusState; Cancel and Close may be
// called from anywhere at any time. Callbacks run in the goroutine of the call, but the log and an
// io.ReaderAt in any; a panic in one stops the call and goes on in its caller. They must not end
// their goroutine (runtime.Goexit, and so T.FailNow of package testing).
package moe

/*
#cgo pkg-config: moe
#include <moe_c.h>
*/
import "C"

// Version of the library at run time.
func Version() string { return C.GoString(C.moe_version_string()) }

// ISAs are the instruction sets built into the library, best first, separated by commas.
func ISAs() string { return C.GoString(C.moe_env_isas()) }

// WeightFormats are those that a Layer can be packed into.
func WeightFormats() string { return C.GoString(C.moe_weight_formats()) }

// SessionRouters are the forms of selection that Session.SetRouter accepts.
func SessionRouters() string { return C.GoString(C.moe_session_routers()) }

// ChatTemplateNames are the chat templates that are built in, separated by commas.
func ChatTemplateNames() string { return C.GoString(C.moe_chat_template_names()) }

// MemoryInfo is the memory of this machine, or of this process's cgroup where that is less.
type MemoryInfo struct {
	TotalBytes, AvailableBytes uint64
}

// GetMemoryInfo gives StatusUnsupported where the system does not say.
func GetMemoryInfo() (MemoryInfo, error) {
	var info C.moe_memory_info
	info.struct_size = C.uint32_t(C.sizeof_moe_memory_info)
	var e C.moe_error
	err := check(C.moe_get_memory_info(&info, &e), &e)
	return MemoryInfo{uint64(info.total_bytes), uint64(info.available_bytes)}, err
}
