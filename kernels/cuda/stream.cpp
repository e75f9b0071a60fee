#include "kernels/cuda/stream.h"

#include <algorithm>

#include "src/base/carver.h"

namespace moe::cuda {
namespace {

/// Pairs for which there is room, for each (sub-)token: more experts a token take turns.
constexpr int64_t kPairsPerToken = 8;

// Room for `n` rows of `d` inputs, or as many bytes in rows of another width.
struct CodeRoom {
  int64_t bytes = 0;
  int64_t scales = 0;
  void add(int64_t n, int64_t d) {
    bytes = std::max(bytes, n * codes_ld(d));
    scales = std::max(scales, n * codes_per_scale(ActPrecision::kA8Block, d));
  }
};

void take_codes(Carver& c, const CodeRoom& room, Codes* codes) {
  c.take(&codes->codes, room.bytes);
  c.take(&codes->scales, room.scales);
  c.take(&codes->sums, room.scales);
}

// Rows of logits that can be looked at together.
int32_t choice_rows(const StreamShape& shape) {
  return shape.vocab_size > 0 ? std::min(shape.max_rows, kMaxChoiceRows) : 0;
}

size_t carve(CudaStream& s, uint8_t* base) {
  const StreamShape& shape = s.shape;
  const int64_t rows = shape.max_rows;
  const int64_t heads = std::max(1, shape.max_subheads);
  const int64_t experts = shape.max_experts;
  const int64_t d = shape.d_model;
  const int64_t widest = std::max({d, int64_t{shape.max_d_in}, int64_t{shape.max_d_ff}});
  int64_t tokens = 0;
  int64_t slots = 0;
  int64_t limit = 0;
  if (rows < 0 || d < 0 || experts < 0 || shape.max_routed < 0 || widest < 0) return 0;
  if (shape.vocab_size < 0 || shape.vocab_size > INT32_MAX - kChoiceSpan) return 0;
  if (!checked_mul(rows, heads, &tokens) || !checked_mul<int64_t>(tokens, shape.max_routed, &slots))
    return 0;
  // Below this no product here overflows.
  if (slots > INT32_MAX || !checked_mul(std::max(slots, tokens) + 1, 16 * (widest + 256), &limit))
    return 0;
  const int64_t of_one_row = heads * shape.max_routed;
  const int64_t pairs = std::max({rows, of_one_row, std::min(slots, tokens * kPairsPerToken)});
  if (pairs > INT32_MAX) return 0;
  s.pair_capacity = static_cast<int32_t>(pairs);

  CodeRoom of_rows;
  of_rows.add(rows, widest);
  of_rows.add(tokens, d / heads);
  of_rows.add(tokens, d);  // layers with fewer sub-heads than the most
  CodeRoom of_pairs;
  of_pairs.add(pairs, shape.max_d_ff);
  of_pairs.add(pairs, d);

  Carver c(base, 0);
  Scratch& m = s.scratch;
  c.take(&m.rows, rows);
  c.take(&m.normed, rows, widest);
  take_codes(c, of_rows, &m.in.a8);
  take_codes(c, of_rows, &m.in.a8_block);
  take_codes(c, of_pairs, &m.mid.a8);
  take_codes(c, of_pairs, &m.mid.a8_block);
  c.take(&m.head, rows, d);
  c.take(&m.routed, rows, d);
  c.take(&m.shared, rows, d);
  c.take(&m.gate, rows);
  c.take(&m.hidden, pairs, shape.max_d_ff);
  c.take(&m.outputs, pairs, d);
  c.take(&m.stack_in, pairs, d);
  c.take(&m.partial, attention_partial_floats(shape.max_rows, shape.max_heads, shape.max_head_dim));
  c.take(&m.arrived, attention_arrived_ints(shape.max_rows, shape.max_heads));
  c.take(&m.scores, tokens, experts);
  c.take(&m.cosine, tokens, shape.max_d_e);
  c.take(&m.routing.expert, slots);
  c.take(&m.routing.weight, slots);
  c.take(&m.routing.kept, slots);
  c.take(&m.routing.count, tokens);
  c.take(&m.prob, slots);
  c.take(&m.route_floats, tokens, 2 * experts);
  c.take(&m.route_ints, tokens, experts);
  c.take(&m.pairs.n_pairs, 1);
  c.take(&m.pairs.n_groups, 1);
  c.take(&m.pairs.group, experts);
  c.take(&m.pairs.begin, experts + 1);
  c.take(&m.pairs.token, slots);
  c.take(&m.pairs.expert, slots);
  c.take(&m.pairs.place, slots);
  c.take(&m.group_scratch,
         group_pairs_scratch(static_cast<int32_t>(tokens), shape.max_routed, shape.max_experts));
  c.take(&m.counters, 2 * experts + 4);
  const int64_t chosen = choice_rows(shape);
  const int64_t spans = choice_spans(shape.vocab_size);
  c.take(&m.choose.best, chosen, spans);
  c.take(&m.choose.bad, chosen, spans);
  c.take(&m.choose.counts, chosen, kLogitClasses);
  c.take(&m.choose.classes, chosen, kLogitClasses);
  c.take(&m.choose.cursor, chosen);
  return c.total();
}

size_t carve_choices(CudaStream& s, uint8_t* base) {
  const int64_t chosen = choice_rows(s.shape);
  const int64_t spans = choice_spans(s.shape.vocab_size);
  Carver c(base, 0);
  DeviceChooseOp& m = s.scratch.choose;
  c.take(&m.heads, chosen);
  c.take(&m.span_sums, chosen, spans);
  c.take(&m.span_weights, chosen, spans);
  c.take(&m.candidates_of, chosen, kMaxCandidates);
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

size_t choice_bytes(const StreamShape& shape) {
  const Allocator none{};
  CudaStream measured(none);
  measured.shape = shape;
  return carve_choices(measured, nullptr);
}

void lay_out_choices(CudaStream& s) { carve_choices(s, static_cast<uint8_t*>(s.choices)); }

void wait(CudaStream& s) {
  s.check(cudaStreamSynchronize(s.stream), "a step on the GPU");
  s.arena.used = 0;
  s.held.finish_turns();
}

bool begin_op(CudaStream& s) {
  if (s.capturing == nullptr && s.arena.used > s.arena.capacity / 2) wait(s);
  return s.live();
}

size_t arena_bytes(const StreamShape& shape) {
  const size_t rows =
      static_cast<size_t>(shape.max_rows) * (sizeof(BatchRow) + sizeof(KvCacheView));
  return 2 * (round_up(rows, size_t{4096}) + kArenaBytes);
}

const void* place(CudaStream& s, const void* host, size_t bytes) {
  StepArena& arena = s.capturing != nullptr ? s.capturing->arena : s.arena;
  const size_t room = round_up(bytes, size_t{64});
  if (!s.live()) return nullptr;
  if (arena.used + room > arena.capacity && s.capturing != nullptr) {
    s.capturing->refused = true;  // end_step() has the step done again, as it is
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
  // A captured step's data goes over as a whole, once, before its first launch.
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
