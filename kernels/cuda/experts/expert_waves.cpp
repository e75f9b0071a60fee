// SPDX-License-Identifier: MIT
// Layers whose experts are not all on the GPU.
//
// The routing is read back once. Experts on the GPU are computed while the missing ones are
// uploaded; these follow in waves, each copied while the previous one is computed. When memory is
// full, waits for the oldest wave, whose experts may then be evicted. Meanwhile the CPU computes
// those for which it is faster (expert_rates.h); they are not uploaded.

#include <algorithm>

#include "kernels/cuda/experts/expert_order.h"

namespace moe::cuda {
namespace {

/// Bytes uploaded before computation starts: small, to keep the GPU busy, but worth the launches.
constexpr uint64_t kWaveBytes = uint64_t{4} << 20;

/// Experts computed at once: [first, end()) of the order, with their own table.
class Wave {
 public:
  Wave(FfnCall& call, const ExpertOrder& order, size_t first)
      : call_(call),
        order_(order),
        first_(first),
        end_(first),
        experts_(call.device.allocator()),
        numbers_(call.device.allocator()) {}
  Wave(const Wave&) = delete;
  Wave& operator=(const Wave&) = delete;
  ~Wave() {
    CudaStream& s = call_.s;
    if (s.check(s.held.end_turn(s.stream), "computing experts")) return;
    wait(s);
    s.held.release_all();
  }

  /// Acquires experts from `first` on until memory is full, an expert is unlike the others, or
  /// there are enough.
  Status fill() {
    while (end_ < order_.n_on_gpu() && !complete() && call_.s.live()) {
      Expert expert;
      const Status status = acquire(order_.experts()[end_], &expert);
      if (out_of_room(status) && end_ > first_) return {};
      MOE_TRY(status);
      if (end_ == first_) MOE_TRY(table_.start(expert));
      if (!table_.like(expert)) {
        call_.s.held.release_last();
        return {};
      }
      MOE_TRY(experts_.push(expert));
      bytes_ += expert.bytes;
      ++end_;
    }
    return {};
  }
  size_t end() const { return end_; }

  /// `whole`: the pass over all experts of the chunk.
  Status run(const Pass& whole) {
    CudaStream& s = call_.s;
    const int32_t pair = order_.begin(first_);
    Pass pass = whole;
    MOE_TRY(place_groups(&pass));
    MOE_TRY(place_table(&pass));
    // Enqueued after the small copies, so that these do not wait for the next expert.
    for (const Expert& e : experts_) {
      s.check(call_.device.copies().await(s.stream, e.arrival), "waiting for an expert");
    }
    if (!s.live()) return {};
    pass.groups.input_row = whole.groups.input_row + pair;
    pass.outputs = whole.outputs + static_cast<int64_t>(pair) * call_.d_in;
    run_pass(call_, pass);
    return {};
  }
  bool stack() const { return table_.stack; }

 private:
  // Resident experts do not wait for missing ones.
  bool complete() const {
    if (end_ == first_ || end_ < order_.n_at_hand()) return false;
    return first_ < order_.n_at_hand() || bytes_ >= kWaveBytes;
  }

  // An empty wave needs its expert, if necessary after all previous waves and other sessions.
  // Deadlock rule: release all experts before waiting for memory.
  Status acquire(int32_t e, Expert* out) {
    CudaStream& s = call_.s;
    for (;;) {
      const bool alone = s.held.empty();
      const ExpertWait how{alone ? ExpertWait::kRoom : ExpertWait::kRead, &s.cancelled, &s.experts};
      const Status status = s.held.acquire(*call_.op.experts, e, how, out);
      if (!out_of_room(status) || alone || end_ > first_) return status;
      if (!s.check(s.held.finish_oldest(), "computing experts")) return s.latched;
    }
  }

  int32_t pairs_before(size_t i) const { return order_.begin(first_ + i) - order_.begin(first_); }

  // Sets the table places of the wave's experts and the beginnings of their pairs.
  Status place_groups(Pass* pass) {
    CudaStream& s = call_.s;
    const size_t n = experts_.size();
    MOE_TRY(numbers_.resize(2 * n + 1));
    for (size_t i = 0; i < n; ++i) numbers_[i] = static_cast<int32_t>(i);
    for (size_t i = 0; i <= n; ++i) numbers_[n + i] = pairs_before(i);
    pass->groups.group = place_array(s, numbers_.data(), n);
    pass->groups.begin = place_array(s, numbers_.data() + n, n + 1);
    pass->groups.rows = {pairs_before(n), nullptr};
    pass->groups.max_groups = static_cast<int32_t>(n);
    pass->groups.n_groups = nullptr;
    pass->expert = nullptr;
    if (!table_.stack && table_.networks[0].like.sub_norm.kind == NormKind::kNone) return {};
    MOE_TRY(numbers_.resize(static_cast<size_t>(pairs_before(n))));
    for (size_t i = 0; i < n; ++i) {
      std::fill(numbers_.data() + pairs_before(i), numbers_.data() + pairs_before(i + 1),
                static_cast<int32_t>(i));
    }
    pass->expert = place_array(s, numbers_.data(), numbers_.size());
    return {};
  }

  Status place_table(Pass* pass) {
    TableImage image(call_.device.allocator());
    MOE_TRY(image.fill(experts_, table_.n_networks));
    const void* base = place(call_.s, image.data(), image.size());
    if (base != nullptr) image.bind(static_cast<const uint8_t*>(base), &table_);
    pass->table = &table_;
    return {};
  }

  FfnCall& call_;
  const ExpertOrder& order_;
  size_t first_;
  size_t end_;
  uint64_t bytes_ = 0;
  LayerTable table_;
  Array<Expert> experts_;
  Array<int32_t> numbers_;
};

/// Host memory for an expert that is not already there.
class HostRoom {
 public:
  HostRoom(FfnCall& call, size_t bytes)
      : copies_(call.device.copies()), own_(call.device.allocator()), bytes_(bytes) {}
  HostRoom(const HostRoom&) = delete;
  HostRoom& operator=(const HostRoom&) = delete;
  ~HostRoom() { copies_.take_back(lent_); }
  Status open(const std::atomic<bool>* cancelled) {
    if (bytes_ == 0) return {};
    MOE_TRY(copies_.lend(bytes_, cancelled, &lent_));
    return lent_ != nullptr ? Status() : own_.resize(bytes_ + kHostAlign);
  }
  uint8_t* data() {
    if (lent_ != nullptr) return static_cast<uint8_t*>(lent_);
    const auto at = reinterpret_cast<uintptr_t>(own_.data());
    return own_.data() + (round_up(at, uintptr_t{kHostAlign}) - at);
  }

 private:
  ExpertCopies& copies_;
  void* lent_ = nullptr;
  Array<uint8_t> own_;
  size_t bytes_;
};

Status compute_on_cpu(FfnCall& call, const ExpertOrder& order, size_t i, float* y) {
  CudaStream& s = call.s;
  HostExpert host;
  const int32_t expert = order.experts()[i];
  call.op.experts->on_host(expert, &host);
  HostRoom room(call, host.in_place ? 0 : static_cast<size_t>(host.bytes));
  MOE_TRY(room.open(&s.cancelled));
  const bool known = host.known;
  const double begin = clock_seconds();
  MOE_TRY(call.op.experts->read_on_host(expert, room.data(), &host));
  uint64_t positive = 0;
  MOE_TRY(s.cpu_experts.compute(host.ffn, call.op.act, s.routing.x, call.d_in, order.tokens(i),
                                order.begin(i + 1) - order.begin(i), y, &positive));
  if (known) call.device.rates().add_cpu(host.bytes, clock_seconds() - begin);
  call.cpu_positive += positive;
  call.activations_per_pair = static_cast<uint64_t>(host.ffn.up.rows);
  return {};
}

// Computes the outputs assigned to the CPU.
Status run_on_cpu(FfnCall& call, const ExpertOrder& order, float* outputs) {
  CudaStream& s = call.s;
  const int32_t first = order.begin(order.n_on_gpu());
  for (size_t i = order.n_on_gpu(); i < order.size() && s.live(); ++i) {
    const int64_t pair = order.begin(i) - first;
    MOE_TRY(compute_on_cpu(call, order, i, s.routing.outputs + pair * call.d_in));
  }
  const auto n = static_cast<size_t>(order.begin(order.size()) - first);
  if (n == 0 || !s.live()) return {};
  s.check(cudaMemcpyAsync(outputs + int64_t{first} * call.d_in, s.routing.outputs,
                          n * static_cast<size_t>(call.d_in) * sizeof(float),
                          cudaMemcpyHostToDevice, s.stream),
          "copying what the CPU computed");
  return {};
}

}  // namespace

Status run_waves(FfnCall& call, const Pass& whole, bool* stack) {
  ExpertOrder order(call.device.allocator());
  MOE_TRY(order.open(call));
  for (size_t first = 0; first < order.n_on_gpu() && call.s.live();) {
    Wave wave(call, order, first);
    MOE_TRY(wave.fill());
    if (!begin_op(call.s)) break;
    MOE_TRY(wave.run(whole));
    *stack = wave.stack();
    first = wave.end();
  }
  return run_on_cpu(call, order, whole.outputs);
}

}  // namespace moe::cuda
