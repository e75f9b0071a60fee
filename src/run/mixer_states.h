// SPDX-License-Identifier: MIT
#pragma once
// The states of a session's mixers after some of its positions.
//
// A pass reads the state after the tokens before it and writes the one after its own tokens to
// other memory, so that a pass that fails or is not wanted has changed nothing. Some older states
// are kept: a rewind evaluates again only the tokens after the nearest one.

#include <algorithm>
#include <type_traits>

#include "src/base/host_buffer.h"
#include "src/model/model.h"
#include "src/run/device_buffer.h"

namespace moe {

/// A session's states take at most so many bytes, as long as they are kLeastStates or more.
inline constexpr uint64_t kStateBudget = uint64_t{32} << 20;
inline constexpr int32_t kLeastStates = 3;
inline constexpr int32_t kMostStates = 32;
/// A state is kept at least every so many tokens, as long as there is room.
inline constexpr int32_t kKeepEvery = 256;

/// Shows the numbers of states to the host. What is in memory of its own on the device goes through
/// host memory in pieces, which do not grow with the state.
class StateMover {
 public:
  static constexpr int64_t kMost = int64_t{1} << 16;  // numbers of a piece

  StateMover(Device& device, const Allocator& allocator) : device_(device), memory_(allocator) {}

  /// n: numbers of a state.
  Status init(int64_t n);
  /// Host memory that init() allocates.
  static uint64_t bytes(const Device& device, int64_t n);

  /// Calls f(numbers) on all of a state, in order.
  template <class F>
  Status read(std::span<float> state, F&& f) {
    return each_piece(state, [&](std::span<float> part, std::span<float> numbers) -> Status {
      if (!in_place()) MOE_TRY(device_.download(numbers.data(), part.data(), part.size_bytes()));
      return f(numbers);
    });
  }
  /// The same, where f() writes the numbers.
  template <class F>
  Status write(std::span<float> state, F&& f) {
    return each_piece(state, [&](std::span<float> part, std::span<float> numbers) -> Status {
      MOE_TRY(f(numbers));
      if (in_place()) return {};
      return device_.upload(part.data(), numbers.data(), part.size_bytes());
    });
  }
  Status copy(std::span<float> from, std::span<float> to);

 private:
  static int64_t room(const Device& device, int64_t n) {
    return device.uses_host_memory() ? 0 : std::min(n, kMost);
  }
  bool in_place() const { return device_.uses_host_memory(); }

  template <class F>
  Status each_piece(std::span<float> state, F&& f) {
    while (!state.empty()) {
      const size_t n = in_place() ? state.size() : std::min(state.size(), piece_.size());
      const std::span<float> part = state.first(n);
      MOE_TRY(f(part, in_place() ? part : piece_.first(n)));
      state = state.subspan(n);
    }
    return {};
  }

  Device& device_;
  std::span<float> piece_;
  HostBuffer memory_;
};

class KeptMixerStates {
 public:
  /// Host memory that describes them; before init().
  void lay_out(Carver& c, const ModelConfig& config);
  Status init(Device& device, const ModelConfig& config);
  /// Device memory that init() allocates; false on overflow.
  static bool bytes(const ModelConfig& config, uint64_t* out);
  /// Numbers of one state, all layers; 0: the model has no mixer.
  static int64_t size(const ModelConfig& config);

  bool any() const { return !slots_.empty(); }
  /// The greatest position that has a state, at most `position`. Position 0 always has one.
  int32_t nearest(int32_t position) const;

  /// Begins a pass at `position`, which has a state, and forgets all states after it: their tokens
  /// may change. `text`: the session's position, whose state is wanted if the pass fails.
  void begin_pass(int32_t position, int32_t text);
  /// The states of a layer in the pass.
  MixerState view(int32_t layer) const;
  /// Passes with equal numbers read and write the same memory.
  uint64_t places() const {
    return static_cast<uint64_t>(from_ + 1) << 32 | static_cast<uint32_t>(to_ + 1);
  }
  /// The pass has succeeded: the state that it wrote is the one after `position` tokens.
  void end_pass(int32_t position);
  /// Keeps the state after `position` tokens longer than others: a text may be continued there.
  void keep(int32_t position);

  void clear();
  /// Replaces all by those of a session of the same model, up to its first `position` tokens. None
  /// are left if that fails.
  Status copy_from(const KeptMixerStates& other, int32_t position, StateMover& mover);
  /// The state after `position` tokens, which has one, in memory of the device: to be read, or to
  /// be filled in after clear().
  std::span<float> values(int32_t position);

 private:
  struct Slot {
    int32_t position = -1;  // tokens that the state is after; -1: free
    bool kept = false;
  };
  static constexpr int32_t kNone = -1;

  void place(Carver& c, const ModelConfig& config);
  int32_t find(int32_t position) const;
  int32_t kept_before(int32_t position) const;
  int32_t choose(int32_t position, int32_t text) const;
  float* at(int32_t slot) const { return memory_of_slots_ + slot * size_; }
  std::span<float> numbers(int32_t slot) const { return {at(slot), static_cast<size_t>(size_)}; }

  std::span<Slot> slots_;
  std::span<int64_t> offsets_;  // (n_layers) of a layer's numbers in a state
  int64_t size_ = 0;
  float* memory_of_slots_ = nullptr;
  int32_t from_ = kNone;  // the slot that a pass reads; kNone: zeros
  int32_t to_ = kNone;
  DeviceBuffer memory_;
};

/// The same in a build without mixers, which has no code for them.
struct NoMixerStates {
  void lay_out(Carver&, const ModelConfig&) {}
  Status init(Device&, const ModelConfig&) { return {}; }
  static bool bytes(const ModelConfig&, uint64_t* out) {
    *out = 0;
    return true;
  }
  static int64_t size(const ModelConfig&) { return 0; }
  static bool any() { return false; }
  static int32_t nearest(int32_t position) { return position; }
  void begin_pass(int32_t, int32_t) {}
  static MixerState view(int32_t) { return {}; }
  static uint64_t places() { return 0; }
  void end_pass(int32_t) {}
  void keep(int32_t) {}
  void clear() {}
  static Status copy_from(const NoMixerStates&, int32_t, StateMover&) { return {}; }
  static std::span<float> values(int32_t) { return {}; }
};

using MixerStates = std::conditional_t<kHasMixers, KeptMixerStates, NoMixerStates>;

}  // namespace moe
