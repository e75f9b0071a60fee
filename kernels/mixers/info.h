// SPDX-License-Identifier: MIT
#pragma once
// Token mixers with a state as data. Each is one file (kernels/mixers/<name>.h) and one line in
// list.h. The file defines a struct NameMixer:
//
//   static constexpr MixerInfo info;
//   template <class Isa>
//   static MOE_HD_CALL int32_t run(const MixerArgs&);
//   template <class Isa>
//   static MOE_HD_CALL void finish(const MixerArgs&, int32_t row);  // optional
//
// A layer's mixer is x = x + W_out run(W_in norm(x)), in place of attention or beside it, where
// W_in and W_out are ordinary matrices in any weight format. run() goes through the tokens of a
// text in order and keeps what later tokens need in the state, which is f32. Its sums have one
// order, so that results do not depend on how a text is split into calls. finish() completes a row
// of the output when all units are done. Both also run on GPUs: groups.h says how threads share
// them.
//
// Plain C headers only: the files of kernels/cpu/isa include this.

#include <stdint.h>

#include "kernels/math.h"

namespace moe {

enum class MixerKind : uint8_t {
#define MOE_MIXER(Name, header) k##Name,
#include "kernels/mixers/built.h"
#undef MOE_MIXER
};

inline constexpr int kMaxMixerParams = 8;
inline constexpr int kMaxMixerWeights = 16;

/// One mixer's parameters, in the order of MixerInfo::params. A later one than those is 0.
struct MixerConfig {
  MixerKind kind = {};
  float params[kMaxMixerParams] = {};

  constexpr MOE_HD int32_t count(int i) const { return static_cast<int32_t>(params[i]); }
};

/// A parameter by its name in files and configurations. Ranges are inclusive.
struct MixerParam {
  const char* name = nullptr;
  float low = 0, high = 0;
  bool whole = true;     // an integer
  bool required = true;  // otherwise `fallback` if a file does not say
  float fallback = 0;
};

enum class MixerUse : uint8_t {
  kIn,      // matrix (n, d_model): its outputs are columns of MixerArgs::in
  kInBias,  // (n) of the matrix before it; optional in files
  kVector,  // n numbers in f32, which run() reads
  kBias,    // the same, of a bias or another vector that files may leave out
  kOut,     // matrix (d_model, n) that MixerArgs::out is multiplied by
  kOutBias  // (d_model); optional in files
};

using MixerSize = int64_t (*)(const MixerConfig&, int32_t d_model);

/// A tensor by its name in files and in the research layout, there after "layers.L."; it begins
/// with the mixer's name. Names of matrices end in ".weight".
struct MixerWeight {
  const char* name = nullptr;
  MixerUse use = MixerUse::kVector;
  MixerSize n = nullptr;
};

struct MixerArgs;

struct MixerInfo {
  const char* name = nullptr;  // in files and configurations
  MixerParam params[kMaxMixerParams] = {};
  MixerWeight weights[kMaxMixerWeights] = {};  // kIn and kOut in this order, one kOut
  MixerSize state = nullptr;                   // numbers of a layer's state
  // run() is split into units, each with its own part of the state and of the output.
  MixerSize units = nullptr;
  MixerSize work = nullptr;  // multiply-adds of a unit for one token
  bool narrow = false;       // a unit is one group's (groups.h): several are run together
  bool finishes = false;     // the mixer has finish(), see above
  // Says what is wrong with parameters that are each in range; returns null if nothing is.
  const char* (*wrong)(const MixerConfig&) = nullptr;

  // Set by kernels/mixers/table.h.
  MixerKind kind = {};

  constexpr int n_params() const {
    int n = 0;
    while (n < kMaxMixerParams && params[n].name != nullptr) ++n;
    return n;
  }
  constexpr int n_weights() const {
    int n = 0;
    while (n < kMaxMixerWeights && weights[n].name != nullptr) ++n;
    return n;
  }
};

/// Consecutive tokens of one text, and units [begin, end).
struct MixerArgs {
  MixerConfig config;
  int32_t d_model = 0;
  int32_t n_rows = 0;
  const float* in = nullptr;  // (n_rows, ld_in): the outputs of the kIn matrices side by side
  int64_t ld_in = 0;
  float* out = nullptr;  // (n_rows, ld_out)
  int64_t ld_out = 0;
  const float* const* vectors = nullptr;  // by index of the weight; null: absent or a matrix
  const float* from = nullptr;            // the state before; null: zeros, as a text begins
  float* to = nullptr;                    // the state after; not the same memory
  int64_t begin = 0;
  int64_t end = 0;
};

/// Returned by run() if no number of the state was NaN or infinite after any row; otherwise it is
/// the first row after which one was.
inline constexpr int32_t kMixerFinite = INT32_MAX;

}  // namespace moe
