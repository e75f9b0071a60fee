// SPDX-License-Identifier: MIT
#pragma once
// The mixers of list.h as a table, and the sizes of a mixer's parts.

#include <string_view>

#include "kernels/mixers/all.h"
#include "src/base/status.h"

namespace moe {
namespace mixer_detail {

template <class Mixer>
constexpr MixerInfo row(MixerKind kind) {
  MixerInfo info = Mixer::info;
  info.kind = kind;
  return info;
}

}  // namespace mixer_detail

/// In the order of MixerKind; the last row is no mixer.
inline constexpr MixerInfo kMixerRows[] = {
#define MOE_MIXER(Name, header) mixer_detail::row<Name##Mixer>(MixerKind::k##Name),
#include "kernels/mixers/built.h"
#undef MOE_MIXER
    {}};
inline constexpr size_t kMixers = sizeof kMixerRows / sizeof kMixerRows[0] - 1;
/// False: code for mixers is left out.
inline constexpr bool kHasMixers = kMixers > 0;

inline const MixerInfo& mixer_info(MixerKind kind) { return kMixerRows[static_cast<size_t>(kind)]; }
inline const MixerInfo& mixer_info(const MixerConfig& config) { return mixer_info(config.kind); }
/// Null if no mixer of this build has that name.
const MixerInfo* find_mixer(std::string_view name);

/// The index of a parameter, or -1.
int find_param(const MixerInfo& info, std::string_view name);
/// The mixer with its defaults.
MixerConfig default_mixer(const MixerInfo& info);
/// Checks every range: MOE_ERR_RANGE, naming the parameter ("short_conv: length: expected 1..64,
/// found 65").
Status validate_mixer(const MixerConfig& config);

/// The fault of a layer whose state is NaN or infinite after a token.
Status mixer_not_finite(MixerKind kind, int32_t layer, int32_t position);

/// Columns of MixerArgs::in and of MixerArgs::out.
struct MixerWidths {
  int64_t in = 0;
  int64_t out = 0;
};
MixerWidths mixer_widths(const MixerConfig& config, int32_t d_model);
inline int64_t mixer_state(const MixerConfig& config, int32_t d_model) {
  return mixer_info(config).state(config, d_model);
}

constexpr bool is_matrix(MixerUse use) { return use == MixerUse::kIn || use == MixerUse::kOut; }

/// Weights of all mixers, one after the other: `index` counts a mixer's own.
constexpr int first_weight(size_t mixer) {
  int n = 0;
  for (size_t m = 0; m < mixer; ++m) n += kMixerRows[m].n_weights();
  return n;
}
inline constexpr int kAllMixerWeights = first_weight(kMixers);

}  // namespace moe
