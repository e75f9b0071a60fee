// SPDX-License-Identifier: MIT
#pragma once
// State and controls of the fake libcublasLt, which its function fake_cublas_lt() returns. Tests
// open the fake as the module opens the real library.

#include <cstddef>
#include <cstdint>

struct FakeCublasLt {
  // observations
  int contexts = 0;  // open
  int objects = 0;   // live descriptors, layouts and preferences
  int heuristics = 0;
  int matmuls = 0;           // enqueued
  const char* refused = "";  // why the latest call was refused
  // controls
  bool cannot_start = false;
  bool no_algorithm = false;
  int matmuls_until_failure = -1;  // -1: none fails
};
inline constexpr char kFakeCublasLtEntry[] = "fake_cublas_lt";
using FakeCublasLtEntry = FakeCublasLt* (*)();
