#pragma once
// A stand-in for libcublasLt on the emulator, for tests that open it as the module opens the real
// one: what fake_cublas_lt() of that file returns.

#include <cstddef>
#include <cstdint>

struct FakeCublasLt {
  // what happened
  int contexts = 0;  // open ones
  int objects = 0;   // descriptors, layouts and preferences that live
  int heuristics = 0;
  int matmuls = 0;           // enqueued
  const char* refused = "";  // why the latest call was refused
  // what shall happen
  bool cannot_start = false;
  bool no_algorithm = false;
  int matmuls_until_failure = -1;  // -1: none fails
};
inline constexpr char kFakeCublasLtEntry[] = "fake_cublas_lt";
using FakeCublasLtEntry = FakeCublasLt* (*)();
