// SPDX-License-Identifier: MIT
// Computes the sizes of a stream's scratch memory from its shape and lays it out on the GPU and on
// the host.
#include "kernels/cuda/stream.h"

#include <algorithm>

#include "src/base/carver.h"

namespace moe::cuda {
namespace {

/// Pairs per (sub-)token with room for computing at once; more experts per token take several
/// passes.
constexpr int64_t kPairsPerToken = 8;

// Room for `n` rows of `d` inputs, or the same bytes in rows of another width.
struct CodeRoom {
  int64_t bytes = 0;
  int64_t blocks = 0;
  int64_t groups = 0;
  void add(int64_t n, int64_t d) {
    bytes = std::max(bytes, n * codes_ld(d));
    blocks = std::max(blocks, n * scales_per_row(ActPrecision::kA8Block, d));
    groups = std::max(groups, n * scales_per_row(ActPrecision::kA8Group, d));
  }
};

void take_codes(Carver& c, int64_t bytes, int64_t n_scales, Codes* codes) {
  c.take(&codes->codes, bytes);
  c.take(&codes->scales, n_scales);
  c.take(&codes->sums, n_scales);
}

void take_inputs(Carver& c, const CodeRoom& room, MatmulInput* in) {
  take_codes(c, room.bytes, room.blocks, &in->a8);
  take_codes(c, room.bytes, room.blocks, &in->a8_block);
  take_codes(c, room.bytes, room.groups, &in->a8_group);
}

// Rows of logits analysed together.
int32_t report_rows(const StreamShape& shape) {
  return shape.vocab_size > 0 ? std::min(shape.max_rows, kMaxSampleRows) : 0;
}

/// Sizes derived from a shape.
struct Sizes {
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t tokens = 0;  // sub-tokens
  int64_t slots = 0;   // experts of all tokens
  int64_t pairs = 0;   // pairs computed at once
  int64_t widest = 0;  // input
};

// False if a size is negative, or a multiplication overflows.
bool sizes_of(const StreamShape& shape, Sizes* out) {
  Sizes z;
  z.rows = shape.max_rows;
  z.heads = std::max(1, shape.max_subheads);
  z.widest = std::max({shape.d_model, shape.max_d_in, shape.max_d_ff});
  if (z.rows < 0 || shape.d_model < 0 || shape.max_experts < 0 || shape.max_routed < 0)
    return false;
  if (shape.vocab_size < 0 || shape.vocab_size > INT32_MAX - kSampleSpan) return false;
  if (!checked_mul(z.rows, z.heads, &z.tokens)) return false;
  if (!checked_mul<int64_t>(z.tokens, shape.max_routed, &z.slots)) return false;
  // Below this no multiplication here overflows.
  int64_t limit = 0;
  if (z.slots > INT32_MAX) return false;
  if (!checked_mul(std::max(z.slots, z.tokens) + 1, 16 * (z.widest + 256), &limit)) return false;
  const int64_t of_one_row = z.heads * shape.max_routed;
  z.pairs = std::max({z.rows, of_one_row, std::min(z.slots, z.tokens * kPairsPerToken)});
  *out = z;
  return z.pairs <= INT32_MAX;
}

void take_rows(Carver& c, const StreamShape& shape, const Sizes& z, Scratch& m) {
  const int64_t d = shape.d_model;
  CodeRoom of_rows;
  of_rows.add(z.rows, z.widest);
  of_rows.add(z.tokens, d / z.heads);
  of_rows.add(z.tokens, d);  // layers with fewer sub-heads
  CodeRoom of_pairs;
  of_pairs.add(z.pairs, shape.max_d_ff);
  of_pairs.add(z.pairs, d);
  c.take(&m.rows, z.rows);
  c.take(&m.normed, z.rows, z.widest);
  take_inputs(c, of_rows, &m.in);
  take_inputs(c, of_pairs, &m.mid);
  c.take(&m.head, z.rows, d);
  c.take(&m.routed, z.rows, d);
  c.take(&m.shared, z.rows, d);
  c.take(&m.gate, z.rows);
  c.take(&m.hidden, z.pairs, shape.max_d_ff);
  c.take(&m.outputs, z.pairs, d);
  c.take(&m.stack_in, z.pairs, d);
  c.take(&m.partial, attention_partial_floats(shape.max_rows, shape.max_heads, shape.max_head_dim));
  c.take(&m.arrived, attention_arrived_ints(shape.max_rows, shape.max_heads));
  c.take(&m.mixer_bad, 1);
}

void take_routing(Carver& c, const StreamShape& shape, const Sizes& z, Scratch& m) {
  const int64_t experts = shape.max_experts;
  c.take(&m.scores, z.tokens, experts);
  c.take(&m.cosine, z.tokens, shape.max_d_e);
  c.take(&m.routing.expert, z.slots);
  c.take(&m.routing.weight, z.slots);
  c.take(&m.routing.kept, z.slots);
  c.take(&m.routing.count, z.tokens);
  c.take(&m.prob, z.slots);
  c.take(&m.route_floats, z.tokens, 2 * experts);
  c.take(&m.route_ints, z.tokens, experts);
  c.take(&m.pairs.n_pairs, 1);
  c.take(&m.pairs.n_groups, 1);
  c.take(&m.pairs.group, experts);
  c.take(&m.pairs.begin, experts + 1);
  c.take(&m.pairs.token, z.slots);
  c.take(&m.pairs.expert, z.slots);
  c.take(&m.pairs.place, z.slots);
  c.take(&m.group_scratch,
         group_pairs_scratch(static_cast<int32_t>(z.tokens), shape.max_routed, shape.max_experts));
  c.take(&m.counters, 2 * experts + 4);
}

void take_sampling(Carver& c, const StreamShape& shape, Scratch& m) {
  const int64_t rows = report_rows(shape);
  const int64_t spans = sample_spans(shape.vocab_size);
  c.take(&m.sample.best, rows, spans);
  c.take(&m.sample.bad, rows, spans);
  c.take(&m.sample.counts, rows, kLogitClasses);
  c.take(&m.sample.classes, rows, kLogitClasses);
  c.take(&m.sample.cursor, rows);
}

size_t carve(CudaStream& s, uint8_t* base) {
  Sizes sizes;
  if (!sizes_of(s.shape, &sizes)) return 0;
  s.pair_capacity = static_cast<int32_t>(sizes.pairs);
  Carver c(base, 0);
  take_rows(c, s.shape, sizes, s.scratch);
  take_routing(c, s.shape, sizes, s.scratch);
  take_sampling(c, s.shape, s.scratch);
  return c.total();
}

size_t carve_reports(CudaStream& s, uint8_t* base) {
  const int64_t rows = report_rows(s.shape);
  const int64_t spans = sample_spans(s.shape.vocab_size);
  Carver c(base, 0);
  DeviceSampleOp& m = s.scratch.sample;
  c.take(&m.heads, rows);
  c.take(&m.span_sums, rows, spans);
  c.take(&m.span_weights, rows, spans);
  c.take(&m.candidates_of, rows, kMaxCandidates);
  return c.total();
}

size_t carve_host(CudaStream& s, uint8_t* base) {
  const int64_t experts = s.shape.max_experts;
  Carver c(base, 0);
  c.take(&s.words, 1);
  c.take(&s.routing.n_groups, 1);
  c.take(&s.routing.group, experts);
  c.take(&s.routing.begin, experts + 1);
  const int64_t pairs = experts > 0 ? kCpuPairs : 0;
  c.take(&s.routing.token, pairs);
  c.take(&s.routing.x, pairs, s.shape.d_model);
  c.take(&s.routing.outputs, pairs, s.shape.d_model);
  return c.total();
}

}  // namespace

size_t scratch_bytes(const StreamShape& shape) {
  const Allocator none{};
  CudaStream measured(none);
  measured.shape = shape;
  return carve(measured, nullptr);
}

void lay_out_scratch(CudaStream& s) { carve(s, static_cast<uint8_t*>(s.memory)); }

size_t host_bytes(const StreamShape& shape) {
  const Allocator none{};
  CudaStream measured(none);
  measured.shape = shape;
  return carve_host(measured, nullptr);
}

void lay_out_host(CudaStream& s) { carve_host(s, static_cast<uint8_t*>(s.host)); }

size_t report_bytes(const StreamShape& shape) {
  const Allocator none{};
  CudaStream measured(none);
  measured.shape = shape;
  return carve_reports(measured, nullptr);
}

void lay_out_reports(CudaStream& s) { carve_reports(s, static_cast<uint8_t*>(s.reports)); }

void wait(CudaStream& s) {
  s.check(cudaStreamSynchronize(s.stream), "a step on the GPU");
  s.arena.used = 0;
  s.held.finish_turns();
}

bool begin_op(CudaStream& s) {
  s.enter();
  if (s.capturing == nullptr && s.arena.used > s.arena.capacity / 2) wait(s);
  return s.live();
}

size_t arena_bytes(const StreamShape& shape) {
  Sizes sizes;
  if (!sizes_of(shape, &sizes)) return 0;
  const size_t rows = static_cast<size_t>(sizes.rows) * (sizeof(BatchRow) + sizeof(KvCacheView));
  const size_t pairs =
      shape.max_experts > 0 ? static_cast<size_t>(sizes.pairs) * sizeof(int32_t) : 0;
  return 2 * (round_up(rows + pairs, size_t{4096}) + kArenaBytes);
}

const void* place(CudaStream& s, const void* host, size_t bytes) {
  StepArena& arena = s.capturing != nullptr ? s.capturing->arena : s.arena;
  const size_t room = round_up(bytes, size_t{64});
  if (!s.live()) return nullptr;
  if (arena.used + room > arena.capacity && s.capturing != nullptr) {
    s.capturing->refused = true;  // end_step() makes the caller repeat the step
    return nullptr;
  }
  if (arena.used + room > arena.capacity) {
    s.latch(Status::error(MOE_ERR_TOO_LONG, "a step's data: room for %zu bytes, found %zu",
                          arena.capacity, arena.used + room));
    return nullptr;
  }
  uint8_t* to = arena.host + arena.used;
  uint8_t* device = arena.device + arena.used;
  arena.used += room;
  std::memcpy(to, host, bytes);
  // A captured step's data is uploaded as a whole, once, before its first launch.
  if (s.capturing == nullptr &&
      !s.check(cudaMemcpyAsync(device, to, bytes, cudaMemcpyHostToDevice, s.stream),
               "copying a step's data")) {
    return nullptr;
  }
  return device;
}

const BatchRow* device_rows(CudaStream& s, const BatchRow* rows, int32_t n) {
  if (rows == nullptr) return nullptr;
  if (s.step_rows != nullptr && rows >= s.step_rows && rows + n <= s.step_rows + s.n_step_rows) {
    return s.scratch.rows + (rows - s.step_rows);
  }
  return place_array(s, rows, static_cast<size_t>(n));
}

}  // namespace moe::cuda
