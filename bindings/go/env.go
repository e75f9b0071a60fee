// SPDX-License-Identifier: MIT

// Env: compute threads and device, over moe_env_*.

package moe

/*
#include <moe_c.h>
void moeGoLog(void* user, moe_log_level level, const char* text);
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// EnvOptions are the options of an Env; zero values are the library's defaults.
type EnvOptions struct {
	Threads        int    // that compute, the caller's included; 0: what the machine allows
	ISA            string // one of ISAs; "": the best this CPU has. Results are the same bits.
	Device         string // "", "auto" (for now) or "cpu": the CPU; "cuda" or "cuda:N"
	GPUMemoryBytes uint64 // most that is allocated on the GPU; 0, or above: 15/16 of what is free
	// Log gets each message, possibly from several threads. It must not call this package: the model
	// may be locked. A panic in it ends there.
	Log func(level LogLevel, text string)
}

// EnvInfo describes an Env.
type EnvInfo struct {
	Threads     int
	Device, ISA string
}

// Env owns the compute threads. Models and layers share it.
type Env struct{ h *handle }

// The version that this package was compiled against; while the major one is 0, a minor one may
// change the structs.
func checkVersion() error {
	const ours = C.MOE_VERSION_MAJOR*1000 + C.MOE_VERSION_MINOR
	if C.moe_version()/1000 == ours {
		return nil
	}
	return failed(StatusUnsupported, fmt.Sprintf("libmoe: expected version %d.%d, found %s",
		C.MOE_VERSION_MAJOR, C.MOE_VERSION_MINOR, Version()))
}

// NewEnv creates an environment; nil: default options.
func NewEnv(options *EnvOptions) (*Env, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	o := orDefault(options)
	threads, err := count(o.Threads, "threads")
	if err != nil {
		return nil, err
	}
	texts, kept := new(arena), new(arena)
	defer texts.free()
	var params C.moe_env_params
	params.struct_size = C.uint32_t(C.sizeof_moe_env_params)
	params.threads = threads
	params.gpu_memory_bytes = C.uint64_t(o.GPUMemoryBytes)
	if err := texts.texts(option{&params.isa, o.ISA, "ISA"}, option{&params.device, o.Device, "Device"}); err != nil {
		return nil, err
	}
	if o.Log != nil {
		params.log, params.log_user = C.moe_log_fn(C.moeGoLog), kept.ref(o.Log)
	}
	var env *C.moe_env
	var e C.moe_error
	if err := check(C.moe_env_create(&params, &env, &e), &e); err != nil {
		kept.free()
		return nil, err
	}
	free := func(p unsafe.Pointer) { C.moe_env_free((*C.moe_env)(p)); kept.free() }
	return collected(&Env{newHandle("environment", unsafe.Pointer(env), nil, free)}), nil
}

// Close frees the memory once everything created from it is closed too.
func (env *Env) Close() { env.h.close() }

func (env *Env) use() (*C.moe_env, func(), error) {
	p, err := env.h.acquire()
	return (*C.moe_env)(p), env.h.release, err
}

// Info describes the environment's device and threads.
func (env *Env) Info() (EnvInfo, error) {
	p, release, err := env.use()
	if err != nil {
		return EnvInfo{}, err
	}
	defer release()
	var info C.moe_env_info
	info.struct_size = C.uint32_t(C.sizeof_moe_env_info)
	var e C.moe_error
	if err := check(C.moe_env_get_info(p, &info, &e), &e); err != nil {
		return EnvInfo{}, err
	}
	return EnvInfo{int(info.threads), C.GoString(info.device), C.GoString(info.isa)}, nil
}

func orDefault[T any](options *T) T {
	if options == nil {
		var zero T
		return zero
	}
	return *options
}
