// SPDX-License-Identifier: MIT
#pragma once
// Numbers that a test adds to its results: how close a GPU comes is worth knowing when it passes,
// too.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moe {

/// Keeps the largest `value` that the running test gives under `name`.
inline void record_largest(const char* name, double value) {
  const testing::TestResult& result =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.test_property_count(); ++i) {
    const testing::TestProperty& p = result.GetTestProperty(i);
    if (std::strcmp(p.key(), name) == 0 && std::atof(p.value()) >= value) return;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  testing::Test::RecordProperty(name, text);
}

}  // namespace moe
