// SPDX-License-Identifier: MIT
// Lays out the stream's buffers; the same function measures and places them.
#include "kernels/cpu/device_cpu_stream.h"

#include <algorithm>
#include <new>

#include "kernels/cpu/linear_input.h"
#include "src/base/carver.h"

namespace moe {
namespace {

// All buffers in one place, to measure and to allocate.
size_t carve(CpuStream& s, uint8_t* base) {
  const StreamShape& shape = s.shape;
  Carver c(base, round_up(sizeof(CpuStream), size_t{64}));
  const int64_t rows = shape.max_rows;
  const int64_t tokens = rows * std::max(1, shape.max_subheads);
  const int64_t experts = shape.max_experts;
  int64_t slots = 0;
  if (!checked_mul<int64_t>(tokens, shape.max_routed, &slots) || slots < 0) return 0;
  if (tokens > INT32_MAX || slots > INT32_MAX) return 0;  // both are 32-bit counts
  // A dense network runs in chunks of rows, so rows count as pairs.
  const int64_t pairs = std::min<int64_t>(kPairChunk, std::max(slots, rows));
  s.pair_chunk = static_cast<int32_t>(std::max<int64_t>(0, pairs));
  const int64_t widest =
      std::max({int64_t{shape.d_model}, int64_t{shape.max_d_in}, int64_t{shape.max_d_ff}});
  if (widest < 0 || widest > INT32_MAX - kActBlock) return 0;
  s.act_row_bytes = static_cast<int64_t>(linear_input_bytes(1, static_cast<int32_t>(widest)));

  c.take(&s.act, std::max(rows, pairs), s.act_row_bytes);
  c.take(&s.normed, rows, widest);
  c.take(&s.head, rows, shape.d_model);
  c.take(&s.routed, rows, shape.d_model);
  c.take(&s.gate, pairs, shape.max_d_ff);
  c.take(&s.up, pairs, shape.max_d_ff);
  c.take(&s.out, pairs, shape.d_model);
  c.take(&s.stack, pairs, shape.d_model);
  c.take(&s.shared_gate, rows);
  c.take(&s.scores, tokens, experts);
  c.take(&s.cosine, tokens, shape.max_d_e);
  c.take(&s.expert, slots);
  c.take(&s.weight, slots);
  c.take(&s.prob, slots);
  c.take(&s.kept, slots);
  c.take(&s.count, tokens);
  c.take(&s.table_entry, tokens);
  c.take(&s.order, tokens);
  c.take(&s.pair_token, slots);
  c.take(&s.pair_weight, slots);
  c.take(&s.pair_begin, experts + 1);
  c.take(&s.chosen, experts);
  c.take(&s.route_p, s.n_threads, experts);
  c.take(&s.route_key, s.n_threads, experts);
  c.take(&s.route_heap, s.n_threads, experts);
  c.take(&s.positive, pairs);
  return c.total();
}

}  // namespace

size_t cpu_stream_bytes(const StreamShape& shape, int32_t n_threads) {
  CpuStream measured;
  measured.shape = shape;
  measured.n_threads = n_threads;
  return carve(measured, nullptr);
}

CpuStream* make_cpu_stream(void* memory, const StreamShape& shape, int32_t n_threads) {
  CpuStream* s = new (memory) CpuStream;
  s->shape = shape;
  s->n_threads = n_threads;
  s->bytes = carve(*s, static_cast<uint8_t*>(memory));
  return s;
}

}  // namespace moe
