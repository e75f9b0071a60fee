// SPDX-License-Identifier: MIT
#pragma once
// Checks of a token mixer against its definition that every mixer has to pass.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/mixers/info.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/every_isa.h"

namespace moe {

/// The rows that a mixer's definition gives.
struct MixerOutcome {
  std::vector<float> y;      // (n_rows, ld_out)
  std::vector<float> after;  // the state
};

/// The rows of `args` from the state `args.from` on, with the end of each row. Sets `bad` to the
/// first row after which the state is not finite.
inline MixerOutcome run_mixer(const CpuKernels& kernels, MixerArgs args, const MixerOutcome& shape,
                              int32_t* bad) {
  MixerOutcome out = {std::vector<float>(shape.y.size(), 7.0f),
                      std::vector<float>(shape.after.size(), 7.0f)};
  args.out = out.y.data();
  args.to = out.after.data();
  *bad = kernels.mix(args);
  for (int32_t r = 0; r < args.n_rows; ++r) kernels.finish_mixed(args, r);
  return out;
}

inline void expect_outcome(const MixerOutcome& found, const MixerOutcome& expected,
                           const char* what) {
  EXPECT_EQ(first_difference(found.y, expected.y), -1) << what;
  EXPECT_EQ(first_difference(found.after, expected.after), -1) << what;
}

/// Every instruction set gives the definition's outcome, bit for bit.
inline void expect_definition(const MixerArgs& args, const MixerOutcome& expected) {
  for (const CpuKernels* kernels : every_isa()) {
    int32_t bad = 0;
    const MixerOutcome found = run_mixer(*kernels, args, expected, &bad);
    EXPECT_EQ(bad, kMixerFinite) << kernels->name;
    expect_outcome(found, expected, kernels->name);
  }
}

/// The same in calls of `rows` rows, units alone or in twos, from one of two states to the other.
inline void expect_definition_in_parts(const MixerArgs& whole, const MixerOutcome& expected,
                                       int32_t rows, int64_t units) {
  for (const CpuKernels* kernels : every_isa()) {
    std::vector<float> y(expected.y.size());
    std::vector<float> states[] = {{whole.from, whole.from + expected.after.size()},
                                   std::vector<float>(expected.after.size())};
    int call = 0;
    for (int32_t r = 0; r < whole.n_rows; r += rows, ++call) {
      MixerArgs a = whole;
      a.n_rows = std::min(rows, whole.n_rows - r);
      a.in += r * a.ld_in;
      a.out = y.data() + r * a.ld_out;
      a.from = states[call % 2].data();
      a.to = states[1 - call % 2].data();
      for (a.begin = 0; a.begin < whole.end; a.begin = a.end) {
        a.end = std::min(a.begin + units, whole.end);
        EXPECT_EQ(kernels->mix(a), kMixerFinite) << kernels->name;
      }
      for (int32_t i = 0; i < a.n_rows; ++i) kernels->finish_mixed(a, i);
    }
    expect_outcome({y, states[call % 2]}, expected, kernels->name);
  }
}

/// The last unit names the first row after which its state is not finite; the others do not see it.
inline void expect_bad_row(const MixerArgs& args, const MixerOutcome& shape, int32_t row) {
  for (const CpuKernels* kernels : every_isa()) {
    int32_t bad = 0;
    (void)run_mixer(*kernels, args, shape, &bad);
    EXPECT_EQ(bad, row) << kernels->name;
    MixerArgs others = args;
    others.end -= 1;
    if (others.end == 0) continue;
    (void)run_mixer(*kernels, others, shape, &bad);
    EXPECT_EQ(bad, kMixerFinite) << kernels->name;
  }
}

// The three checks of a mixer. Case has args(), `before` (a state), `first` and `next` (the
// outcomes at the beginning of a text and after `before`), and spoil(row, value), which puts a
// value into the input of the last unit at a row.

template <class Case>
MixerArgs continued(const Case& c) {
  MixerArgs args = c.args();
  args.from = c.before.data();
  return args;
}

template <class Case>
void expect_definition(const Case& c) {
  expect_definition(c.args(), c.first);
  expect_definition(continued(c), c.next);
}

template <class Case>
void expect_parts_agree(const Case& c) {
  for (const int32_t rows : {1, 3, 7}) {
    for (const int64_t units : {1, 2}) {
      expect_definition_in_parts(continued(c), c.next, rows, units);
    }
  }
}

template <class Case>
void expect_first_bad_row(Case c) {
  const int32_t row = c.args().n_rows / 2;
  for (const float bad : {NAN, INFINITY}) {
    c.spoil(row, bad);
    expect_bad_row(c.args(), c.first, row);
  }
}

}  // namespace moe
