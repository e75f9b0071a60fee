// SPDX-License-Identifier: MIT
// Builds and uploads the table of a layer whose experts all fit in GPU memory, and finds it again.
#include "kernels/cuda/experts/expert_table.h"

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {
namespace {

constexpr int32_t kTryAgain = 256;  // calls before a retry after too little memory

bool alike(const Matrix& a, const Matrix& b) {
  return a.format == b.format && a.scale_kind == b.scale_kind && a.act == b.act &&
         a.group == b.group && a.rows == b.rows && a.cols == b.cols &&
         a.tile_stride == b.tile_stride && a.empty() == b.empty();
}

// Offsets of the arrays of network `n` for `experts` experts.
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

Status LayerTable::start(const Expert& expert) {
  stack = expert.n_sublayers > 0;
  n_networks = stack ? expert.n_sublayers : 1;
  if (n_networks > kMaxSublayers) {
    return Status::error(MOE_ERR_UNSUPPORTED, "cuda: expert: at most %d blocks, found %d",
                         kMaxSublayers, n_networks);
  }
  for (int32_t n = 0; n < n_networks; ++n) networks[n].like = expert.ffn[n];
  return {};
}

bool LayerTable::like(const Expert& expert) const {
  for (int32_t n = 0; n < n_networks; ++n) {
    const Ffn& a = expert.ffn[n];
    const Ffn& b = networks[n].like;
    if (!alike(a.gate, b.gate) || !alike(a.up, b.up) || !alike(a.down, b.down) ||
        a.sub_norm.kind != b.sub_norm.kind) {
      return false;
    }
  }
  return true;
}

size_t TableImage::bytes(size_t n_experts, int32_t n_networks) {
  return Offsets(static_cast<size_t>(n_networks) - 1, n_experts).end;
}

Status TableImage::fill(const Array<Expert>& experts, int32_t n_networks) {
  n_experts_ = experts.size();
  MOE_TRY(bytes_.resize(bytes(n_experts_, n_networks)));
  for (int32_t n = 0; n < n_networks; ++n) {
    const Offsets at(static_cast<size_t>(n), n_experts_);
    auto* gate = reinterpret_cast<Weight*>(bytes_.data() + at.gate);
    auto* up = reinterpret_cast<Weight*>(bytes_.data() + at.up);
    auto* down = reinterpret_cast<Weight*>(bytes_.data() + at.down);
    auto* in_norm = reinterpret_cast<Norm*>(bytes_.data() + at.in_norm);
    auto* sub_norm = reinterpret_cast<Norm*>(bytes_.data() + at.sub_norm);
    for (size_t e = 0; e < n_experts_; ++e) {
      const Ffn& ffn = experts[e].ffn[n];
      gate[e] = {ffn.gate, ffn.gate_bias};
      up[e] = {ffn.up, ffn.up_bias};
      down[e] = {ffn.down, ffn.down_bias};
      in_norm[e] = ffn.in_norm;
      sub_norm[e] = ffn.sub_norm;
    }
  }
  return {};
}

void TableImage::bind(const uint8_t* base, LayerTable* table) const {
  for (int32_t n = 0; n < table->n_networks; ++n) {
    const Offsets at(static_cast<size_t>(n), n_experts_);
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

uint64_t ExpertTables::n_ready() {
  LockGuard guard(mutex_);
  return n_ready_;
}

Status ExpertTables::entry(const ExpertSource& source, int32_t n_experts, LayerTable** out) {
  for (const Box<LayerTable>& t : tables_) {
    *out = t.get();
    if (t->source == &source) return {};
  }
  MOE_ASSIGN(Box<LayerTable> table, make_box<LayerTable>(allocator_));
  table->source = &source;
  table->n_experts = n_experts;
  *out = table.get();
  return tables_.push(std::move(table));
}

// True if an attempt is worthwhile.
bool ExpertTables::fits(ExpertSource& source, LayerTable* table) {
  if (table->unlike) return false;
  if (table->n_to_wait > 0 && --table->n_to_wait > 0) return false;
  return source.fit_in(device_.free_bytes(), table->bytes);
}

Status ExpertTables::acquire_all(Build& build) {
  const auto n = static_cast<size_t>(build.table.n_experts);
  MOE_TRY(build.experts.reserve(n));
  for (size_t e = 0; e < n && !build.unlike; ++e) {
    Expert expert;
    MOE_TRY(build.source.acquire(static_cast<int32_t>(e),
                                 {ExpertWait::kRead, build.cancelled, nullptr}, &expert));
    MOE_TRY(build.experts.push(expert));
    if (e == 0) MOE_TRY(build.table.start(expert));
    build.unlike = !build.table.like(expert);
  }
  return {};
}

Status ExpertTables::copy_table(Build& build) {
  LayerTable& table = build.table;
  for (const Expert& e : build.experts) {
    MOE_TRY(cuda_status(device_.copies().wait_for(e.arrival), "copying an expert to the GPU"));
  }
  TableImage image(allocator_);
  MOE_TRY(image.fill(build.experts, table.n_networks));
  table.bytes = image.size();
  // The size was unknown before.
  if (!build.source.fit_in(device_.free_bytes(), table.bytes)) {
    return Status::error(MOE_ERR_BUDGET, "GPU memory: no room for a table of %zu bytes",
                         table.bytes);
  }
  Status status = device_.alloc(table.bytes, &table.memory);
  if (out_of_room(status) && build.source.make_room(table.bytes)) {
    status = device_.alloc(table.bytes, &table.memory);
  }
  MOE_TRY(status);
  image.bind(static_cast<const uint8_t*>(table.memory), &table);
  return device_.upload(table.memory, image.data(), table.bytes);
}

Status ExpertTables::try_to_build(Build& build) {
  Status status = acquire_all(build);
  if (status.ok() && !build.unlike) status = copy_table(build);
  const bool keep = status.ok() && !build.unlike;
  for (size_t e = 0; e < build.experts.size(); ++e) {
    const auto expert = static_cast<int32_t>(e);
    keep ? build.source.retain(expert) : build.source.release(expert);
  }
  if (keep) return {};
  device_.free(build.table.memory, build.table.bytes);
  build.table.memory = nullptr;
  return status;
}

Status ExpertTables::find(ExpertSource& source, int32_t n_experts, bool only_ready,
                          const std::atomic<bool>* cancelled, const LayerTable** out) {
  *out = nullptr;
  LayerTable* table = nullptr;
  LockGuard guard(mutex_);
  for (;;) {
    MOE_TRY(entry(source, n_experts, &table));
    if (table->ready) {
      *out = table;
      return {};
    }
    if (only_ready || (table != building_ && !fits(source, table))) return {};
    if (building_ == nullptr) break;
    if (cancelled != nullptr && cancelled->load()) {
      return Status::error(MOE_ERR_CANCELLED, "cancelled");
    }
    built_.wait_unless(mutex_, cancelled);
  }
  building_ = table;
  Build build{source, cancelled, *table, Array<Expert>(allocator_)};
  mutex_.unlock();
  const Status status = try_to_build(build);
  mutex_.lock();
  building_ = nullptr;
  built_.notify_all();
  table->ready = table->memory != nullptr;
  table->unlike = build.unlike;
  if (table->ready) {
    ++n_ready_;
    *out = table;
  }
  if (!out_of_room(status)) return status;
  table->n_to_wait = kTryAgain;  // there seemed to be enough memory
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
