// SPDX-License-Identifier: MIT
// Configuration of Mamba2, and where its convolutions are in a checkpoint.
#include "src/convert/arch/mamba.h"

#include <algorithm>

#include "kernels/mixers/mamba2.h"
#include "src/convert/mixer.h"

namespace moe {
namespace {

using Mixer = Mamba2Mixer;

// Without a width of heads, or with "auto", the channels are divided.
int32_t head_width(ConfigKeys* keys, int64_t inner, int32_t heads) {
  const char* const key = "mamba_d_head";
  const bool own = keys->has(key) && keys->node(key).value() != "auto";
  if (!own) keys->ignore({key});
  const int64_t width =
      own || inner == 0 ? keys->integer(key, 1, Mamba2Sizes::kMaxDim) : inner / heads;
  if (inner != 0 && width * heads != inner) {
    fail(MOE_ERR_SHAPE, "%s %d of %s %lld are not %lld wide", keys->place("mamba_n_heads").c_str(),
         heads, keys->spelled(key).c_str(), static_cast<long long>(width),
         static_cast<long long>(inner));
  }
  return static_cast<int32_t>(width);
}

// [low, high]. An infinite number is {"__float__": "Infinity"} in files of transformers 5, and in
// others a word that parse_json() turns into "+inf".
void read_limits(ConfigKeys* keys, MixerConfig* mamba) {
  const std::vector<JsonNode> limits = keys->list("time_step_limit", 2);
  if (limits.empty()) return;
  const double most = mixer_info(*mamba).params[Mixer::kDtHigh].high;
  const bool bounded = !limits[1].value().is_object() && limits[1].value() != "+inf";
  const double low = limits[0].number(), high = bounded ? limits[1].number() : most;
  if (!(low >= 0 && low <= high)) {
    fail_value(keys->node("time_step_limit"), "two numbers from 0 on in ascending order are");
  }
  mamba->params[Mixer::kDtLow] = static_cast<float>(low);
  if (bounded) mamba->params[Mixer::kDtHigh] = static_cast<float>(std::min(high, most));
}

}  // namespace

MixerConfig read_mamba(Decoder* d, int64_t inner) {
  ConfigKeys& keys = d->keys;
  MixerConfig mamba = built_mixer("mamba2");
  const auto size = [&](Mixer::Param param, int32_t n) {
    mamba.params[param] = static_cast<float>(n);
  };
  const int32_t heads = keys.integer("mamba_n_heads", 128, 1, Mamba2Sizes::kMaxHeads);
  size(Mixer::kHeads, heads);
  size(Mixer::kHeadDim, head_width(&keys, inner, heads));
  const int32_t groups = keys.integer("mamba_n_groups", 1, 1, heads);
  keys.check_divides("mamba_n_groups", groups, "mamba_n_heads", heads);
  size(Mixer::kGroups, groups);
  size(Mixer::kStateDim, keys.integer("mamba_d_state", 256, 1, Mamba2Sizes::kMaxDim));
  size(Mixer::kLength, keys.integer("mamba_d_conv", 4, 1, Convolution::kMaxTaps));
  mamba.params[Mixer::kEps] = d->config().norm_eps;
  keys.ignore({"mamba_chunk_size"});
  read_limits(&keys, &mamba);
  const Status status = validate_mixer(mamba);
  if (!status.ok()) fail(status.code(), "config.json: %s", status.text());
  return mamba;
}

void replace_attention(const MixerConfig& mixer, LayerConfig* layer) {
  layer->has_attention = false;
  layer->attention = {};
  layer->has_mixer = true;
  layer->mixer.mixer = mixer;
}

void turn_mamba_convolutions(const Checkpoint& checkpoint, Imported* out) {
  const Role role = mixer_role(built_mixer("mamba2").kind, Mixer::kConv);
  std::vector<int32_t> n_taps;
  for (const LayerConfig& layer : out->config.layers) {
    n_taps.push_back(layer.has_mixer ? layer.mixer.mixer.count(Mixer::kLength) : 0);
  }
  out->locate = [locate = std::move(out->locate), n_taps = std::move(n_taps), role, &checkpoint](
                    const SlotGroup& group, const Slot& slot) {
    Source source = locate(group, slot);
    if (slot.role != role) return source;
    const int32_t taps = n_taps[static_cast<size_t>(group.layer)];
    const int32_t channels = slot.rows / taps;
    const SourceTensor* const tensor = checkpoint.find(source.tensor);
    source.shape = {channels, taps};
    if (tensor == nullptr || tensor->shape.size() != 2)
      source.shape.insert(source.shape.begin() + 1, 1);
    source.row_stride = taps;
    source.row_groups.pieces = {{channels, 0}};
    source.row_groups.stride = 1;
    return source;
  };
}

}  // namespace moe
