// SPDX-License-Identifier: MIT
// Chooses which states to keep, and gives a pass the one that it reads and the one that it writes.
#include "src/run/mixer_states.h"

#include <algorithm>

namespace moe {
namespace {

int64_t layer_size(const ModelConfig& config, const LayerConfig& layer) {
  return layer.has_mixer ? mixer_state(layer.mixer.mixer, config.d_model) : 0;
}

// As many states as the budget holds.
int32_t n_states(const ModelConfig& config) {
  const auto bytes = static_cast<uint64_t>(KeptMixerStates::size(config)) * sizeof(float);
  if (bytes == 0) return config.has_mixers() ? kLeastStates : 0;
  const uint64_t n = std::clamp<uint64_t>(kStateBudget / bytes, kLeastStates, kMostStates);
  return static_cast<int32_t>(n);
}

}  // namespace

Status StateMover::init(int64_t n) {
  return memory_.init("moving states of mixers",
                      [&](Carver& c) { c.take(&piece_, room(device_, n)); });
}

uint64_t StateMover::bytes(const Device& device, int64_t n) {
  std::span<float> piece;
  return measured([&](Carver& c) { c.take(&piece, room(device, n)); });
}

Status StateMover::copy(std::span<float> from, std::span<float> to) {
  return read(from, [&](std::span<const float> numbers) -> Status {
    if (in_place()) {
      std::copy(numbers.begin(), numbers.end(), to.begin());
    } else {
      MOE_TRY(device_.upload(to.data(), numbers.data(), numbers.size_bytes()));
    }
    to = to.subspan(numbers.size());
    return {};
  });
}

int64_t KeptMixerStates::size(const ModelConfig& config) {
  int64_t n = 0;
  for (const LayerConfig& layer : config.layers) {
    if (kHasMixers) n += layer_size(config, layer);
  }
  return n;
}

void KeptMixerStates::place(Carver& c, const ModelConfig& config) {
  c.take(&memory_of_slots_, n_states(config), size(config));
}

bool KeptMixerStates::bytes(const ModelConfig& config, uint64_t* out) {
  *out = 0;
  if (!config.has_mixers()) return true;
  KeptMixerStates measured;
  return measure([&](Carver& c) { measured.place(c, config); }, out);
}

void KeptMixerStates::lay_out(Carver& c, const ModelConfig& config) {
  if (!config.has_mixers()) return;
  c.take(&slots_, n_states(config));
  c.take(&offsets_, config.n_layers());
}

Status KeptMixerStates::init(Device& device, const ModelConfig& config) {
  if (!any()) return {};
  size_ = 0;
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const auto i = static_cast<size_t>(l);
    offsets_[i] = size_;
    size_ += layer_size(config, config.layers[i]);
  }
  return memory_.init(device, "states of mixers", [&](Carver& c) { place(c, config); });
}

int32_t KeptMixerStates::find(int32_t position) const {
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].position == position) return static_cast<int32_t>(s);
  }
  return kNone;
}

int32_t KeptMixerStates::nearest(int32_t position) const {
  int32_t found = 0;
  for (const Slot& slot : slots_) {
    if (slot.position <= position) found = std::max(found, slot.position);
  }
  return found;
}

// The greatest position before `position` whose state is kept; that of an empty text is.
int32_t KeptMixerStates::kept_before(int32_t position) const {
  int32_t found = 0;
  for (const Slot& slot : slots_) {
    if (slot.kept && slot.position < position) found = std::max(found, slot.position);
  }
  return found;
}

// The slot whose state is worth least: a free one, one that is not kept, or the one whose loss adds
// the fewest tokens to a rewind. Rewinds to positions close to the end count more.
int32_t KeptMixerStates::choose(int32_t position, int32_t text) const {
  int32_t best = kNone;
  int64_t best_loss = 0, best_distance = 1;
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    const auto index = static_cast<int32_t>(s);
    if (slot.position < 0) return index;
    if (index == from_ || slot.position == text) continue;
    const int64_t loss = slot.kept ? slot.position - kept_before(slot.position) : 0;
    const int64_t distance = std::max(position - slot.position, 0) + int64_t{1};
    if (best != kNone && loss * best_distance >= best_loss * distance) continue;
    best = index;
    best_loss = loss;
    best_distance = distance;
  }
  return best;
}

void KeptMixerStates::begin_pass(int32_t position, int32_t text) {
  for (Slot& slot : slots_) {
    if (slot.position > position) slot = {};
  }
  from_ = position == 0 ? kNone : find(position);
  to_ = choose(position, text);
  slots_[static_cast<size_t>(to_)] = {};
}

MixerState KeptMixerStates::view(int32_t layer) const {
  const int64_t offset = offsets_[static_cast<size_t>(layer)];
  return {from_ == kNone ? nullptr : at(from_) + offset, at(to_) + offset};
}

void KeptMixerStates::end_pass(int32_t position) {
  Slot& slot = slots_[static_cast<size_t>(to_)];
  slot = {position, position - kept_before(position) >= kKeepEvery};
}

void KeptMixerStates::keep(int32_t position) {
  const int32_t slot = find(position);
  if (slot != kNone) slots_[static_cast<size_t>(slot)].kept = true;
}

void KeptMixerStates::clear() {
  for (Slot& slot : slots_) slot = {};
}

Status KeptMixerStates::copy_from(const KeptMixerStates& other, int32_t position,
                                  StateMover& mover) {
  clear();
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (other.slots_[s].position < 0 || other.slots_[s].position > position) continue;
    slots_[s] = other.slots_[s];
    const auto index = static_cast<int32_t>(s);
    const Status status = mover.copy(other.numbers(index), numbers(index));
    if (!status.ok()) clear();
    MOE_TRY(status);
  }
  return {};
}

std::span<float> KeptMixerStates::values(int32_t position) {
  int32_t slot = find(position);
  if (slot == kNone) {
    slot = 0;
    slots_[0] = {position, true};
  }
  return numbers(slot);
}

}  // namespace moe
