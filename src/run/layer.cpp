// SPDX-License-Identifier: MIT
// Opens the stream of a single layer and runs it in chunks of rows, one thread at a time.
#include "src/run/layer.h"

#include <algorithm>

#include "kernels/router/table.h"
#include "src/base/inline.h"
#include "src/run/layer_parts.h"

namespace moe {
namespace {

StreamShape stream_shape(const LayerSpec& spec) {
  StreamShape s;
  s.max_rows = spec.max_rows;
  s.d_model = spec.d_model;
  s.max_d_ff = std::max(spec.d_ff, spec.shared_d_ff);
  s.max_d_in = std::max(spec.d_model, s.max_d_ff);
  s.max_experts = spec.n_experts;
  s.max_subheads = spec.n_subheads;
  s.max_routed = s.max_own_routed = router_max_k(spec.router, spec.n_experts);
  s.max_d_e = router_info(spec.router).scores == RouterScores::kCosine ? spec.d_e : 0;
  s.max_d_in = std::max(s.max_d_in, s.max_d_e);
  return s;
}

Status open_work(const LayerSpec& spec, LayerParts* parts) {
  MOE_TRY(parts->work.init(parts->device, "layer", [&](Carver& c) {
    c.take(&parts->x, spec.max_rows, spec.d_model);
    c.take(&parts->y, spec.max_rows, spec.d_model);
  }));
  parts->max_rows = spec.max_rows;
  parts->vocab_size = spec.vocab_size;
  MOE_TRY(parts->rows.resize(static_cast<size_t>(spec.max_rows)));
  MOE_ASSIGN(parts->stream, parts->device.open_stream(stream_shape(spec)));
  return {};
}

Status check_input(const LayerParts& parts, std::span<const float> x, const int32_t* tokens,
                   size_t n) {
  const size_t d = static_cast<size_t>(parts.op.d_model);
  if (n * d != x.size()) {
    return Status::error(MOE_ERR_SHAPE, "layer: %zu values are not whole rows of %zu", x.size(), d);
  }
  if (parts.op.router.gamma > 0 && n > static_cast<size_t>(parts.max_rows)) {
    return Status::error(MOE_ERR_TOO_LONG,
                         "layer: with an expert capacity at most max_rows (%d) rows, found %zu",
                         parts.max_rows, n);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (is_finite(x[i])) continue;
    return Status::error(MOE_ERR_NON_FINITE, "layer: x[%zu][%zu] is not a finite number", i / d,
                         i % d);
  }
  if (router_info(parts.op.router).scores != RouterScores::kTable) return {};
  if (tokens == nullptr) {
    return Status::error(MOE_ERR_ARGUMENT, "layer: the hash router needs token ids");
  }
  for (size_t i = 0; i < n; ++i) {
    if (tokens[i] >= 0 && tokens[i] < parts.vocab_size) continue;
    return Status::error(MOE_ERR_RANGE, "layer: token %zu: expected an id in 0..%d, found %d", i,
                         parts.vocab_size - 1, tokens[i]);
  }
  return {};
}

template <class T>
T* from_row(T* rows, size_t row, size_t width) {
  return rows == nullptr ? nullptr : rows + row * width;
}

// Destination of the routing of the (sub-)tokens from `token` on.
Routing routing_from(const LayerRouting& to, size_t token, size_t max_k, size_t n_experts) {
  Routing r;
  r.expert = from_row(to.expert, token, max_k);
  r.weight = from_row(to.weight, token, max_k);
  r.kept = from_row(to.kept, token, max_k);
  r.count = from_row(to.count, token, 1);
  r.scores = from_row(to.scores, token, n_experts);
  return r;
}

Status forward_rows(LayerParts& parts, const float* x, const int32_t* tokens, size_t first,
                    size_t n, float* y, const LayerRouting* routing) {
  const size_t d = static_cast<size_t>(parts.op.d_model);
  MOE_TRY(parts.device.upload(parts.x, x + first * d, n * d * sizeof(float)));
  for (size_t i = 0; i < n; ++i) {
    parts.rows[i] = {0, static_cast<int32_t>(i), tokens == nullptr ? 0 : tokens[first + i]};
  }
  FfnOp op = parts.op;
  op.x = parts.x;
  op.y = parts.y;
  op.n_rows = static_cast<int32_t>(n);
  op.rows = parts.rows.data();
  Routing out;
  if (routing != nullptr) {
    const size_t max_k = static_cast<size_t>(router_max_k(op.router, op.n_experts));
    out = routing_from(*routing, first * static_cast<size_t>(op.n_subheads), max_k,
                       static_cast<size_t>(op.n_experts));
    out.n_tokens = op.n_rows * op.n_subheads;
    out.max_k = static_cast<int32_t>(max_k);
    op.routing_out = &out;
  }
  parts.device.ffn(*parts.stream, op);
  MOE_TRY(parts.device.sync(*parts.stream));
  return parts.device.download(y + first * d, parts.y, n * d * sizeof(float));
}

/// Marks the layer as used by this thread.
class InUse {
 public:
  explicit InUse(std::atomic<bool>& flag) : flag_(flag), taken_(!flag.exchange(true)) {}
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  ~InUse() {
    if (taken_) flag_.store(false);
  }
  bool taken() const { return taken_; }

 private:
  std::atomic<bool>& flag_;
  bool taken_;
};

}  // namespace

Result<Box<MoeLayer>> MoeLayer::create(Device& device, const LayerSpec& spec,
                                       const Allocator& allocator) {
  MOE_TRY(check_layer_spec(spec));
  MOE_ASSIGN(auto parts, make_box<LayerParts>(allocator, device, allocator));
  MOE_TRY(pack_layer(spec, allocator, parts.get()));
  MOE_TRY(open_work(spec, parts.get()));
  return make_box<MoeLayer>(allocator, std::move(parts));
}

MoeLayer::MoeLayer(Box<LayerParts> parts) : parts_(std::move(parts)) {}
MoeLayer::~MoeLayer() = default;

int32_t MoeLayer::d_model() const { return parts_->op.d_model; }
int32_t MoeLayer::max_routed() const {
  return router_max_k(parts_->op.router, parts_->op.n_experts);
}

Status MoeLayer::forward(std::span<const float> x, const int32_t* tokens, float* y,
                         const LayerRouting* routing) {
  InUse use(parts_->in_use);
  if (!use.taken()) return Status::error(MOE_ERR_STATE, "the layer is in use by another call");
  const size_t n = x.size() / static_cast<size_t>(parts_->op.d_model);
  MOE_TRY(check_input(*parts_, x, tokens, n));
  for (size_t first = 0; first < n;) {
    const size_t rows = std::min(n - first, static_cast<size_t>(parts_->max_rows));
    MOE_TRY(forward_rows(*parts_, x.data(), tokens, first, rows, y, routing));
    first += rows;
  }
  return {};
}

}  // namespace moe
