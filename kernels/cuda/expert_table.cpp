#include "kernels/cuda/expert_table.h"

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {
namespace {

bool alike(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.scale_kind == b.scale_kind && a.act == b.act &&
         a.group == b.group && a.rows == b.rows && a.cols == b.cols &&
         a.tile_stride == b.tile_stride && a.empty() == b.empty();
}

// Where the arrays of network `n` begin, for `experts` of them.
struct Offsets {
  size_t gate, up, down, in_norm, sub_norm, end;
  Offsets(size_t n, size_t experts) {
    const size_t weights = round_up(experts * sizeof(Weight), size_t{64});
    const size_t norms = round_up(experts * sizeof(Norm), size_t{64});
    gate = n * (3 * weights + 2 * norms);
    up = gate + weights;
    down = up + weights;
    in_norm = down + weights;
    sub_norm = in_norm + norms;
    end = sub_norm + norms;
  }
};

}  // namespace

Status TableImage::open(int32_t n_experts, int32_t n_networks) {
  n_experts_ = n_experts;
  n_networks_ = n_networks;
  first_ = true;
  const Offsets last(static_cast<size_t>(n_networks) - 1, static_cast<size_t>(n_experts));
  return bytes_.resize(last.end);
}

bool TableImage::set(int32_t index, const Expert& expert, LayerTable* table) {
  const auto e = static_cast<size_t>(index);
  for (int32_t n = 0; n < n_networks_; ++n) {
    const Ffn& ffn = expert.ffn[n];
    NetworkTable& network = table->networks[n];
    if (first_) network.like = ffn;
    if (!alike(ffn.gate, network.like.gate) || !alike(ffn.up, network.like.up) ||
        !alike(ffn.down, network.like.down) || ffn.sub_norm.kind != network.like.sub_norm.kind) {
      return false;
    }
    const Offsets at(static_cast<size_t>(n), static_cast<size_t>(n_experts_));
    reinterpret_cast<Weight*>(bytes_.data() + at.gate)[e] = {ffn.gate, ffn.gate_bias};
    reinterpret_cast<Weight*>(bytes_.data() + at.up)[e] = {ffn.up, ffn.up_bias};
    reinterpret_cast<Weight*>(bytes_.data() + at.down)[e] = {ffn.down, ffn.down_bias};
    reinterpret_cast<Norm*>(bytes_.data() + at.in_norm)[e] = ffn.in_norm;
    reinterpret_cast<Norm*>(bytes_.data() + at.sub_norm)[e] = ffn.sub_norm;
  }
  first_ = false;
  return true;
}

void TableImage::bind(const uint8_t* base, LayerTable* table) const {
  for (int32_t n = 0; n < n_networks_; ++n) {
    const Offsets at(static_cast<size_t>(n), static_cast<size_t>(n_experts_));
    NetworkTable& network = table->networks[n];
    network.gate = reinterpret_cast<const Weight*>(base + at.gate);
    network.up = reinterpret_cast<const Weight*>(base + at.up);
    network.down = reinterpret_cast<const Weight*>(base + at.down);
    network.in_norm = reinterpret_cast<const Norm*>(base + at.in_norm);
    network.sub_norm = reinterpret_cast<const Norm*>(base + at.sub_norm);
  }
}

ExpertTables::~ExpertTables() {
  for (Box<LayerTable>& t : tables_) device_.free(t->memory, t->bytes);
}

Status ExpertTables::build(ExpertSource& source, int32_t n_experts, LayerTable* table,
                           bool* alike) {
  TableImage image(allocator_);
  *alike = true;
  int32_t held = 0;
  Array<Arrival> arrivals(allocator_);
  MOE_TRY(arrivals.resize(static_cast<size_t>(n_experts)));
  Status status;
  for (; held < n_experts && *alike; ++held) {
    Expert expert;
    status = source.borrow(held, false, &expert);
    if (!status.ok()) break;
    arrivals[static_cast<size_t>(held)] = expert.arrival;
    if (held == 0) {
      table->stack = expert.n_sublayers > 0;
      table->n_networks = table->stack ? expert.n_sublayers : 1;
      if (table->n_networks > kMaxSublayers) {
        status = Status::error(MOE_ERR_UNSUPPORTED, "cuda: expert: at most %d blocks, found %d",
                               kMaxSublayers, table->n_networks);
      } else {
        status = image.open(n_experts, table->n_networks);
      }
    }
    if (status.ok()) *alike = image.set(held, expert, table);
    if (!status.ok()) {
      ++held;
      break;
    }
  }
  for (int32_t e = 0; e < held && status.ok(); ++e) {
    const Arrival a = arrivals[static_cast<size_t>(e)];
    status = cuda_status(device_.copies().settle(a), "copying an expert to the GPU");
  }
  if (status.ok() && *alike) {
    table->bytes = image.size();
    status = device_.alloc(table->bytes, &table->memory);
    if (status.ok()) status = device_.upload(table->memory, image.data(), table->bytes);
  }
  if (status.ok() && *alike) {
    image.bind(static_cast<const uint8_t*>(table->memory), table);
    for (int32_t e = 0; e < held; ++e) source.keep(e);
    return {};
  }
  device_.free(table->memory, table->bytes);
  table->memory = nullptr;
  for (int32_t e = 0; e < held; ++e) source.give_back(e);
  return status;
}

Status ExpertTables::find(ExpertSource& source, int32_t n_experts, const LayerTable** out) {
  LockGuard guard(mutex_);
  for (const Box<LayerTable>& t : tables_) {
    if (t->source != &source) continue;
    *out = t->memory != nullptr ? t.get() : nullptr;
    return {};
  }
  MOE_ASSIGN(Box<LayerTable> table, make_box<LayerTable>(allocator_));
  MOE_TRY(tables_.reserve(tables_.size() + 1));  // keeps the experts only if there is room
  table->source = &source;
  table->n_experts = n_experts;
  bool alike = false;
  const Status status = build(source, n_experts, table.get(), &alike);
  // Sessions that were opened since can have taken the room that was meant for the experts.
  const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
  if (!full) MOE_TRY(status);
  *out = table->memory != nullptr ? table.get() : nullptr;
  MOE_TRY(tables_.resize(tables_.size() + 1));
  tables_.back() = std::move(table);
  return {};
}

void ExpertTables::forget(const ExpertSource& source) {
  LockGuard guard(mutex_);
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i]->source != &source) continue;
    const Box<LayerTable> table = std::move(tables_[i]);
    if (i + 1 < tables_.size()) tables_[i] = std::move(tables_.back());
    (void)tables_.resize(tables_.size() - 1);
    device_.free(table->memory, table->bytes);
    return;
  }
}

}  // namespace moe::cuda
