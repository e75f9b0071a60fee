// SPDX-License-Identifier: MIT
// Options of the sanitizers' run time: too large an allocation returns null, like malloc.

extern "C" {
const char* __asan_default_options() { return "allocator_may_return_null=1"; }
const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
const char* __ubsan_default_options() { return "print_stacktrace=1"; }
}
