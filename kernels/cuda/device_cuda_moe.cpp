// The feed-forward part of a layer: route, experts, ordered sum, shared expert.
//
// When every expert of the layer is on the GPU nothing waits: kernels read from device memory what
// routing chose. Otherwise the choice is read back once (the only wait inside a layer), the chosen
// experts are brought in as many at a time as there is room for, and each such wave is computed.

#include <algorithm>
#include <utility>

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {
namespace {

struct MoeCall {
  CudaDevice& device;
  CudaStream& s;
  const MoeOp& op;
  const float* x = nullptr;     // (n_rows, d_model), normed
  const float* subs = nullptr;  // (n_tokens, d_in)
  const BatchRow* rows = nullptr;
  int32_t d_in = 0;
  int32_t n_tokens = 0;
  int32_t max_k = 0;
  uint64_t* n_positive = nullptr;     // on the device, or null
  uint64_t activations_per_pair = 0;  // what n_positive is a part of
  MatmulInput input = {};             // x as codes, as far as `have` says
  WantedInputs have{false, false, false};
  bool grouped = false;  // the pairs of all tokens are sorted already
};

/// The pairs that one pass computes, and their experts.
struct Pass {
  const LayerTable* table = nullptr;
  RowGroups groups;                 // input_row: token of each pair
  const int32_t* expert = nullptr;  // of each pair
  MatmulInput in;                   // tokens
  float* outputs = nullptr;         // of the pairs
};

MatmulOut of_table(const Matrix& like, const float* bias, const Weight* table) {
  MatmulOut out;
  out.weight = {like, bias};
  if (like.empty()) return out;  // no such matrix: networks without a gate
  out.table = table;
  return out;
}

InputRows input_rows(RowCount n, int32_t d, const float* x) {
  InputRows rows;
  rows.rows = n;
  rows.d = d;
  rows.x = x;
  rows.ld_x = d;
  return rows;
}

// hidden = act(gate x) * up x for the rows of `groups`, then its norm and codes.
MatmulInput hidden_rows(MoeCall& call, const RowGroups& groups, const NetworkTable& network,
                        const MatmulInput& in, const int32_t* expert) {
  CudaStream& s = call.s;
  const Ffn& like = network.like;
  GatedOp gated;
  gated.rows = groups;
  gated.in = in;
  gated.gate = of_table(like.gate, like.gate_bias, network.gate);
  gated.up = of_table(like.up, like.up_bias, network.up);
  gated.act = call.op.act;
  gated.hidden = s.scratch.hidden;
  gated.ld_hidden = like.up.rows;
  gated.n_positive = call.n_positive;
  s.check(gated_matmul(s.stream, gated), "gate and up");
  WantedInputs wanted;
  wanted.add(like.down);
  InputRows rows = input_rows(groups.rows, like.up.rows, s.scratch.hidden);
  rows.normed = s.scratch.hidden;
  if (like.sub_norm.kind != NormKind::kNone) {
    rows.norm = {like.sub_norm, network.sub_norm, expert};
    if (network.sub_norm == nullptr) rows.norm.norms = nullptr;
  }
  return make_input(s, rows, wanted, s.scratch.mid);
}

void down_rows(MoeCall& call, const RowGroups& groups, const NetworkTable& network,
               const MatmulInput& in, float* y, bool accumulate) {
  MatmulOp down;
  down.rows = groups;
  down.rows.input_row = nullptr;
  down.in = in;
  down.n_outs = 1;
  down.outs[0] = of_table(network.like.down, network.like.down_bias, network.down);
  down.outs[0].y = y;
  down.outs[0].ld_y = call.d_in;
  down.outs[0].accumulate = accumulate;
  call.s.check(matmul(call.s.stream, down), "down");
}

// X-MoE: v = v + W2 act(W1 norm(v)), block after block, in the place of the outputs.
void run_stack(MoeCall& call, const Pass& pass) {
  CudaStream& s = call.s;
  RowGroups groups = pass.groups;
  s.check(
      gather_rows(s.stream, {groups.rows, groups.input_row, call.subs, call.d_in, pass.outputs}),
      "gathering tokens");
  groups.input_row = nullptr;
  for (int32_t n = 0; n < pass.table->n_networks; ++n) {
    const NetworkTable& network = pass.table->networks[n];
    WantedInputs wanted;
    wanted.add(network.like.gate);
    wanted.add(network.like.up);
    InputRows rows = input_rows(groups.rows, call.d_in, pass.outputs);
    rows.norm = {network.like.in_norm, network.in_norm, pass.expert};
    rows.normed = s.scratch.stack_in;
    const MatmulInput in = make_input(s, rows, wanted, s.scratch.mid);
    const MatmulInput hidden = hidden_rows(call, groups, network, in, pass.expert);
    down_rows(call, groups, network, hidden, pass.outputs, true);
  }
}

// x, or n rows of it from `first` on, in the wanted precisions: what is there already, or made now.
MatmulInput codes_of(MoeCall& call, int32_t first, int32_t n, int32_t d, const float* x,
                     const WantedInputs& wanted) {
  const bool there = (call.have.a8 || !wanted.a8) && (call.have.a8_block || !wanted.a8_block);
  if (there && x == call.x && first == 0 && n == call.op.n_rows && d == call.op.d_model) {
    MatmulInput in = call.input;
    in.x = x;
    in.ld_x = d;
    return in;
  }
  call.have = {false, false, false};  // its memory is used again
  return make_input(call.s, input_rows({n, nullptr}, d, x + int64_t{first} * d), wanted,
                    call.s.scratch.in);
}

// The outputs of all pairs of a pass.
void run_pass(MoeCall& call, const Pass& pass) {
  call.activations_per_pair = 0;
  for (int32_t n = 0; n < pass.table->n_networks; ++n) {
    call.activations_per_pair += static_cast<uint64_t>(pass.table->networks[n].like.up.rows);
  }
  if (pass.table->stack) return run_stack(call, pass);
  const NetworkTable& network = pass.table->networks[0];
  const MatmulInput hidden = hidden_rows(call, pass.groups, network, pass.in, pass.expert);
  down_rows(call, pass.groups, network, hidden, pass.outputs, false);
}

// --- Experts that are not all on the GPU --------------------------------------------------------

/// The routing of a chunk, as the host sees it.
struct ReadBack {
  explicit ReadBack(const Allocator& a) : experts(a), begin(a) {}
  Array<int32_t> experts;  // (n_groups) ascending
  Array<int32_t> begin;    // (n_groups + 1)
  Status read(MoeCall& call) {
    CudaStream& s = call.s;
    const PairLists& pairs = s.scratch.pairs;
    int32_t n = 0;
    wait(s);
    MOE_TRY(s.latched);
    MOE_TRY(call.device.download(&n, pairs.n_groups, sizeof n));
    MOE_TRY(experts.resize(static_cast<size_t>(n)));
    MOE_TRY(begin.resize(static_cast<size_t>(n) + 1));
    MOE_TRY(call.device.download(experts.data(), pairs.group, experts.size() * sizeof(int32_t)));
    return call.device.download(begin.data(), pairs.begin, begin.size() * sizeof(int32_t));
  }
};

/// Experts held for one wave.
class Wave {
 public:
  Wave(MoeCall& call, const ReadBack& routing, size_t first)
      : call_(call),
        routing_(routing),
        first_(first),
        end_(first),
        image_(call.device.allocator()),
        begin_(call.device.allocator()) {}
  Wave(const Wave&) = delete;
  Wave& operator=(const Wave&) = delete;
  ~Wave() {
    wait(call_.s);  // kernels may still read them
    for (size_t i = first_; i < end_; ++i) call_.op.experts->release(routing_.experts[i]);
  }

  /// Brings in experts from `first` on until there is no more room, or one is unlike the others.
  Status fill() {
    MOE_TRY(begin_.resize(routing_.begin.size()));
    while (end_ < routing_.experts.size()) {
      const int32_t e = routing_.experts[end_];
      Expert expert;
      const Status status = call_.op.experts->acquire(e, &expert);
      const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
      if (full && end_ > first_) return {};
      MOE_TRY(status);
      ++end_;
      if (end_ == first_ + 1) {
        table_.stack = expert.n_sublayers > 0;
        table_.n_networks = table_.stack ? expert.n_sublayers : 1;
        if (table_.n_networks > kMaxSublayers) {
          return Status::error(MOE_ERR_UNSUPPORTED, "cuda: expert: at most %d blocks, found %d",
                               kMaxSublayers, table_.n_networks);
        }
        MOE_TRY(image_.open(call_.op.n_experts, table_.n_networks));
      }
      if (image_.set(e, expert, &table_)) continue;
      call_.op.experts->release(e);
      --end_;
      return {};
    }
    return {};
  }
  size_t end() const { return end_; }

  /// `whole`: the pass over all experts of the chunk.
  void run(const Pass& whole) {
    CudaStream& s = call_.s;
    const int32_t pair = routing_.begin[first_];
    for (size_t i = end_ + 1; i-- > first_;) begin_[i] = routing_.begin[i] - pair;
    const void* base = place(s, image_.data(), image_.size());
    const int32_t* begin = place_array(s, begin_.data() + first_, end_ + 1 - first_);
    if (!s.live()) return;
    image_.bind(static_cast<const uint8_t*>(base), &table_);
    Pass pass = whole;
    pass.table = &table_;
    pass.groups.rows = {begin_[end_], nullptr};
    pass.groups.max_groups = static_cast<int32_t>(end_ - first_);
    pass.groups.n_groups = nullptr;
    pass.groups.group = whole.groups.group + first_;
    pass.groups.begin = begin;
    pass.groups.input_row = whole.groups.input_row + pair;
    pass.expert = whole.expert + pair;
    pass.outputs = whole.outputs + static_cast<int64_t>(pair) * call_.d_in;
    run_pass(call_, pass);
  }
  bool stack() const { return table_.stack; }

 private:
  MoeCall& call_;
  const ReadBack& routing_;
  size_t first_;
  size_t end_;
  LayerTable table_;
  TableImage image_;
  Array<int32_t> begin_;  // pairs of each expert, counted from the wave's first
};

Status run_waves(MoeCall& call, const Pass& whole, bool* stack) {
  ReadBack routing(call.device.allocator());
  MOE_TRY(routing.read(call));
  for (size_t first = 0; first < routing.experts.size() && call.s.live();) {
    Wave wave(call, routing, first);
    MOE_TRY(wave.fill());
    if (!begin_op(call.s)) break;
    wave.run(whole);
    *stack = wave.stack();
    first = wave.end();
  }
  return {};
}

// --- Routing -------------------------------------------------------------------------------------

Matrix in_float(Matrix m) {
  m.act = ActPrecision::kF32;
  return m;
}

void compute_scores(MoeCall& call) {
  CudaStream& s = call.s;
  const RouterWeightsView& w = call.op.router_weights;
  MatmulInput in;
  in.x = call.subs;
  in.ld_x = call.d_in;
  if (call.op.router.kind == RouterKind::kHash) return;
  if (call.op.router.kind != RouterKind::kCosine) {
    return plain_matmul(s, in, call.n_tokens, in_float(w.scores), w.bias, s.scratch.scores,
                        call.op.n_experts);
  }
  const Matrix proj = in_float(w.proj);
  plain_matmul(s, in, call.n_tokens, proj, w.proj_bias, s.scratch.cosine, proj.rows);
  s.check(cosine_scores(s.stream, {call.op.router, s.scratch.cosine, in_float(w.embedding),
                                   call.n_tokens, s.scratch.scores}),
          "cosine scores");
}

Routing routing_of(MoeCall& call) {
  Routing r = call.s.scratch.routing;
  r.n_tokens = call.n_tokens;
  r.max_k = call.max_k;
  r.scores = nullptr;
  return r;
}

// Tokens whose pairs are computed at once.
int32_t chunk_tokens(const MoeCall& call) {
  return std::max(1, call.s.pair_capacity / std::max(1, call.max_k));
}

void route_layer(MoeCall& call) {
  CudaStream& s = call.s;
  compute_scores(call);
  DeviceRouteOp route;
  route.config = call.op.router;
  route.scores = s.scratch.scores;
  route.selection_bias = call.op.router_weights.selection_bias;
  route.table = call.op.router_weights.table;
  route.rows = call.rows;
  route.n_subheads = call.op.n_subheads;
  route.n_experts = call.op.n_experts;
  route.out = routing_of(call);
  route.prob = s.scratch.prob;
  route.floats = s.scratch.route_floats;
  route.ints = s.scratch.route_ints;
  route.fault = &s.words->fault;
  call.grouped = call.n_tokens <= chunk_tokens(call);
  if (call.grouped) {
    s.check(route_and_group(s.stream, route, s.scratch.pairs, s.scratch.group_scratch), "routing");
  } else {
    s.check(route_tokens(s.stream, route), "routing");
  }
}

template <class T>
T* from(T* base, int64_t n) {
  return base == nullptr ? nullptr : base + n;
}

Routing slice(const Routing& all, int32_t first, int32_t n) {
  const int64_t slot = static_cast<int64_t>(first) * all.max_k;
  Routing r = all;
  r.n_tokens = n;
  r.expert = from(all.expert, slot);
  r.weight = from(all.weight, slot);
  r.kept = from(all.kept, slot);
  r.count = from(all.count, first);
  return r;
}

// sum (n_tokens, d_in) = what the experts give, a chunk of tokens at a time; `whole`: y of the
// layer at once.
void run_experts(MoeCall& call, float* sum, bool whole) {
  CudaStream& s = call.s;
  const Routing routing = routing_of(call);
  const LayerTable* table = nullptr;
  if (call.op.experts->all_stay()) {
    const Status status = call.device.tables().find(*call.op.experts, call.op.n_experts, &table);
    if (!status.ok()) return s.latch(status);
  }
  if (table == nullptr && s.capturing != nullptr) {
    s.capturing->refused = true;  // it must wait; end_step() has the step done again
    return;
  }
  const float* subs = call.subs;
  const int32_t chunk = chunk_tokens(call);
  for (int32_t first = 0; first < call.n_tokens && s.live(); first += chunk) {
    const int32_t n = std::min(chunk, call.n_tokens - first);
    const int64_t at = static_cast<int64_t>(first) * call.d_in;
    const Routing part = slice(routing, first, n);
    const PairLists& pairs = s.scratch.pairs;
    call.subs = subs + at;
    if (!call.grouped) {
      s.check(group_pairs(s.stream, part, call.op.n_experts, pairs, s.scratch.group_scratch),
              "grouping by expert");
    }
    if (!s.live()) break;
    Pass pass;
    pass.table = table;
    pass.groups.rows = {n * call.max_k, pairs.n_pairs};
    pass.groups.max_groups = std::min(call.op.n_experts, n * call.max_k);
    pass.groups.n_groups = pairs.n_groups;
    pass.groups.group = pairs.group;
    pass.groups.begin = pairs.begin;
    pass.groups.input_row = pairs.token;
    pass.expert = pairs.expert;
    pass.outputs = s.scratch.outputs;
    WantedInputs wanted{true, true, true};  // of experts that are not known yet
    bool stack = false;
    if (table != nullptr) {
      stack = table->stack;
      wanted = {};
      if (!stack) wanted.add(table->networks[0].like.gate);
      if (!stack) wanted.add(table->networks[0].like.up);
    }
    pass.in = codes_of(call, 0, n, call.d_in, call.subs, wanted);
    if (table != nullptr) {
      run_pass(call, pass);
    } else {
      const Status status = run_waves(call, pass, &stack);
      if (!status.ok()) s.latch(status);
    }
    if (!s.live()) break;
    CombineOp add;
    add.routing = part;
    add.place = pairs.place;
    add.outputs = s.scratch.outputs;
    add.subtract = stack ? call.subs : nullptr;
    add.d = call.d_in;
    if (whole) {
      add.y = call.op.y + at;
      add.accumulate = call.op.accumulate;
      add.scale = call.op.scale;
    } else {
      add.sum = sum + at;
    }
    s.check(combine(s.stream, add), "adding up the experts");
  }
  call.subs = subs;
}

// --- The whole layer -----------------------------------------------------------------------------

// One network of which there is only one: no groups.
NetworkTable table_of(const Ffn& ffn) {
  NetworkTable network;
  network.like = ffn;
  return network;
}

// Hidden activations of op.shared for rows [first, first + n).
MatmulInput shared_hidden(MoeCall& call, int32_t first, int32_t n, const NetworkTable& network) {
  WantedInputs wanted;
  wanted.add(network.like.gate);
  wanted.add(network.like.up);
  const MatmulInput in = codes_of(call, first, n, call.op.d_model, call.x, wanted);
  RowGroups groups;
  groups.rows.n = n;
  return hidden_rows(call, groups, network, in, nullptr);
}

// y (+)= scale * shared(x), a chunk of rows at a time.
void run_shared(MoeCall& call, float* y, bool accumulate, float scale) {
  CudaStream& s = call.s;
  const Ffn& ffn = *call.op.shared;
  const NetworkTable network = table_of(ffn);
  for (int32_t first = 0; first < call.op.n_rows && s.live(); first += s.pair_capacity) {
    const int32_t n = std::min(s.pair_capacity, call.op.n_rows - first);
    const MatmulInput hidden = shared_hidden(call, first, n, network);
    plain_matmul(s, hidden, n, ffn.down, ffn.down_bias,
                 y + static_cast<int64_t>(first) * call.op.d_model, call.op.d_model, accumulate,
                 scale);
  }
}

// The product of op.head or op.merge with rows of width d_model.
void mix_heads(MoeCall& call, const Matrix& weight, const float* bias, const float* x, float* y) {
  CudaStream& s = call.s;
  WantedInputs wanted;
  wanted.add(weight);
  const MatmulInput in = codes_of(call, 0, call.op.n_rows, call.op.d_model, x, wanted);
  plain_matmul(s, in, call.op.n_rows, weight, bias, y, call.op.d_model);
}

void run_moe(MoeCall& call) {
  const MoeOp& op = call.op;
  CudaStream& s = call.s;
  call.subs = call.x;
  if (!op.head.empty()) {
    mix_heads(call, op.head, op.head_bias, call.x, s.scratch.head);
    call.subs = s.scratch.head;
  }
  route_layer(call);
  const bool experts_alone = op.merge.empty() && op.shared == nullptr;
  run_experts(call, s.scratch.routed, experts_alone);
  if (experts_alone) return;
  MergeOp merge;
  merge.sum = s.scratch.routed;
  if (!op.merge.empty()) {
    mix_heads(call, op.merge, op.merge_bias, s.scratch.routed, s.scratch.head);
    merge.sum = s.scratch.head;
  }
  if (op.shared != nullptr) {
    uint64_t* counted = std::exchange(call.n_positive, nullptr);  // of routed experts only
    run_shared(call, s.scratch.shared, false, 1);
    call.n_positive = counted;
    merge.shared = s.scratch.shared;
  }
  if (!op.shared_gate.empty()) {
    WantedInputs wanted;
    wanted.add(op.shared_gate);
    const MatmulInput in = codes_of(call, 0, op.n_rows, op.d_model, call.x, wanted);
    plain_matmul(s, in, op.n_rows, op.shared_gate, nullptr, s.scratch.gate, 1);
    merge.gate = s.scratch.gate;
  }
  if (!s.live()) return;
  merge.n_rows = op.n_rows;
  merge.d = op.d_model;
  merge.accumulate = op.accumulate;
  merge.scale = op.scale;
  merge.y = op.y;
  s.check(merge_rows(s.stream, merge), "the layer's sum");
}

// --- What the host wants to know
// ------------------------------------------------------------------

/// RoutingStats of one call, counted on the device and added to the host's.
class Counters {
 public:
  explicit Counters(MoeCall& call) : call_(call) {
    if (call.op.stats == nullptr) return;
    CudaStream& s = call.s;
    s.check(cudaMemsetAsync(s.scratch.counters, 0, n() * sizeof(uint64_t), s.stream), "counters");
    call.n_positive = s.scratch.counters;
  }
  Status add() {
    RoutingStats* stats = call_.op.stats;
    CudaStream& s = call_.s;
    if (stats == nullptr || !s.live()) return {};
    uint64_t* device = s.scratch.counters;
    const auto experts = static_cast<size_t>(call_.op.n_experts);
    if (experts > 0) {
      CountOp count{routing_of(call_), call_.op.n_experts, device + 3, device + 3 + experts,
                    device + 1};
      s.check(count_routing(s.stream, count), "counting");
    }
    wait(s);
    MOE_TRY(s.latched);
    Array<uint64_t> host(call_.device.allocator());
    MOE_TRY(host.resize(n()));
    MOE_TRY(call_.device.download(host.data(), device, n() * sizeof(uint64_t)));
    stats->n_positive += host[0];
    uint64_t pairs = experts > 0 ? 0 : static_cast<uint64_t>(call_.op.n_rows);
    for (size_t e = 0; e < experts; ++e) {
      pairs += host[3 + e];
      if (stats->tokens_per_expert != nullptr) stats->tokens_per_expert[e] += host[3 + e];
    }
    stats->n_activations += pairs * call_.activations_per_pair;
    if (experts == 0) return {};
    stats->n_tokens += host[1];
    stats->n_dropped += host[2];
    for (size_t k = 0; k <= experts && stats->experts_per_token != nullptr; ++k) {
      stats->experts_per_token[k] += host[3 + experts + k];
    }
    return {};
  }

 private:
  size_t n() const { return 4 + 2 * static_cast<size_t>(call_.op.n_experts); }

  MoeCall& call_;
};

// Copies the routing to op.routing_out.
Status report(MoeCall& call) {
  Routing* out = call.op.routing_out;
  CudaStream& s = call.s;
  if (out == nullptr || !s.live()) return {};
  wait(s);
  MOE_TRY(s.latched);
  const Routing r = routing_of(call);
  out->n_tokens = r.n_tokens;
  out->max_k = r.max_k;
  const size_t tokens = static_cast<size_t>(r.n_tokens);
  const size_t slots = tokens * static_cast<size_t>(r.max_k);
  const auto copy = [&](auto* to, const auto* from, size_t n) {
    return to == nullptr ? Status() : call.device.download(to, from, n * sizeof *to);
  };
  MOE_TRY(copy(out->expert, r.expert, slots));
  MOE_TRY(copy(out->weight, r.weight, slots));
  MOE_TRY(copy(out->kept, r.kept, slots));
  MOE_TRY(copy(out->count, r.count, tokens));
  if (call.op.router.kind == RouterKind::kHash) return {};
  return copy(out->scores, s.scratch.scores, tokens * static_cast<size_t>(call.op.n_experts));
}

void run_layer(MoeCall& call) {
  const MoeOp& op = call.op;
  if (op.n_experts == 0) {
    call.activations_per_pair = static_cast<uint64_t>(op.shared->up.rows);
    return run_shared(call, op.y, op.accumulate, op.scale);
  }
  call.d_in = op.d_model / op.n_subheads;
  call.n_tokens = op.n_rows * op.n_subheads;
  call.max_k = router_max_k(op.router, op.n_experts);
  run_moe(call);
}

}  // namespace

// The precisions in which this layer's matrices will want x, as far as that is known before.
WantedInputs wanted_of_layer(CudaDevice& device, const MoeOp& op) {
  WantedInputs wanted{true, false, false};
  if (!op.head.empty()) {
    wanted.add(op.head);
    return wanted;
  }
  const LayerTable* table = nullptr;
  const bool known = op.n_experts > 0 && op.n_subheads == 1 && op.experts->all_stay() &&
                     device.tables().find(*op.experts, op.n_experts, &table).ok();
  if (known && table != nullptr && !table->stack) {
    wanted.add(table->networks[0].like.gate);
    wanted.add(table->networks[0].like.up);
  }
  if (op.shared != nullptr) {
    wanted.add(op.shared->gate);
    wanted.add(op.shared->up);
  }
  wanted.add(op.shared_gate);
  return wanted;
}

void cuda_moe(CudaDevice& device, CudaStream& s, const MoeOp& op) {
  MoeCall call{device, s, op};
  call.x = op.x;
  call.rows = device_rows(s, op.rows, op.n_rows);
  if (!s.live()) return;
  if (op.norm.kind != NormKind::kNone) {
    InputRows rows = input_rows({op.n_rows, nullptr}, op.d_model, op.x);
    rows.norm.one = op.norm;
    rows.normed = s.scratch.normed;
    call.have = wanted_of_layer(device, op);
    call.input = make_input(s, rows, call.have, s.scratch.in);
    call.x = call.input.x;
  }
  Counters counters(call);
  run_layer(call);
  Status status = counters.add();
  if (status.ok()) status = report(call);
  if (!status.ok()) s.latch(status);
}

void CudaDevice::moe(Stream& stream, const MoeOp& op) {
  CudaStream& s = static_cast<CudaStream&>(stream);
  if (!begin_op(s) || op.n_rows == 0) return;
  cuda_moe(*this, s, op);
}

}  // namespace moe::cuda
