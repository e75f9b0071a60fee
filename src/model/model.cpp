#include "src/model/model.h"

#include <atomic>

#include "src/base/mutex.h"
#include "src/model/account.h"
#include "src/model/bind.h"
#include "src/model/blob.h"
#include "src/model/check.h"
#include "src/model/config_read.h"
#include "src/model/expert_store.h"

namespace moe {
namespace {

// The MoE side of one layer.
struct LayerStore {
  LayerStore(const MoeFile& file, Device& device, const Allocator& allocator, bool verify,
             int32_t n_experts)
      : loader{file, device, allocator, verify, n_experts}, experts(allocator) {}

  BlobLoader loader;
  ExpertStore experts;
};

}  // namespace

struct Model::Impl {
  Impl(Box<MoeFile> f, const ModelOptions& o, Device& d, const Logger& l, const Allocator& a)
      : file(std::move(f)),
        options(o),
        device(d),
        logger(l),
        allocator(a),
        config(a),
        layers(a),
        cache(d),
        stores(a),
        blobs(a) {}

  Status open();
  Status open_layer(int32_t index);
  Status prepare(uint64_t session_bytes);
  Status check_room(uint64_t session_bytes);
  Status verify() const;
  int32_t experts_of(int32_t layer) const;

  Box<MoeFile> file;
  ModelOptions options;
  Device& device;
  Logger logger;
  const Allocator& allocator;
  ModelConfig config;
  ModelAccount account;

  ModelWeights common;
  Array<LayerWeights> layers;
  ExpertCache cache;
  Array<Box<LayerStore>> stores;  // empty boxes for dense layers

  Mutex mutex;        // guards blobs and binding
  Array<Blob> blobs;  // by segment; experts have theirs in the stores
  std::atomic<bool> ready{false};
  std::atomic<uint64_t> numbers{0};
};

int32_t Model::Impl::experts_of(int32_t layer) const {
  if (layer < 0) return 0;
  const FfnConfig& ffn = config.layers[static_cast<size_t>(layer)].ffn;
  return ffn.kind == FfnKind::kMoe ? ffn.moe.n_experts : 0;
}

Status Model::Impl::open() {
  MOE_TRY(read_config(*file->metadata().config(), &config));
  MOE_TRY(validate(config));
  MOE_TRY(check_tensors(*file, config));
  account = account_model(*file, config);
  MOE_TRY(layers.resize(config.layers.size()));
  MOE_TRY(stores.resize(config.layers.size()));
  MOE_TRY(blobs.resize(file->segments().size));
  for (int32_t l = 0; l < config.n_layers(); ++l) MOE_TRY(open_layer(l));
  logger.log(LogLevel::kDebug, "opened %s: %d layers, %zu segments", config.name.c_str(),
             config.n_layers(), file->segments().size);
  return {};
}

Status Model::Impl::open_layer(int32_t index) {
  const int32_t n_experts = experts_of(index);
  if (n_experts == 0) return {};
  const auto l = static_cast<size_t>(index);
  MOE_ASSIGN(stores[l],
             make_box<LayerStore>(allocator, *file, device, allocator, options.verify, n_experts));
  LayerStore& store = *stores[l];
  MOE_TRY(store.experts.open(store.loader, cache, index, config.layers[l].ffn.moe.n_sublayers,
                             norm_of(config)));
  layers[l].experts = &store.experts;
  for (const BlobMatrix& m : file->layout(*file->find(Part::kRouter, index, -1)).matrices) {
    if (m.role == Role::kProj) layers[l].d_e = m.rows;
  }
  return {};
}

// On a device with a limit of its own: all experts, or turns on what the rest leaves free.
Status Model::Impl::check_room(uint64_t session_bytes) {
  const uint64_t limit = device.memory_limit();
  if (limit == 0) return {};
  constexpr uint64_t kEntry = 512;  // what a device keeps about each network beside its weights
  uint64_t weights = 0;
  uint64_t experts = 0;
  const uint64_t largest = account.largest_expert;
  for (const FileSegment& s : file->segments()) {
    if (s.part != Part::kExperts) continue;
    const int32_t blocks = config.layers[static_cast<size_t>(s.layer)].ffn.moe.n_sublayers;
    weights += s.raw;
    experts += s.raw + kEntry * static_cast<uint64_t>(std::max(1, blocks));
  }
  const uint64_t rest = account.weight_bytes - weights;
  const bool scarce = rest + session_bytes + experts > limit;
  if (rest + session_bytes + largest <= limit) {
    cache.set_scarce(scarce);
    return {};
  }
  const auto megabytes = [](uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  return Status::error(MOE_ERR_BUDGET,
                       "%s: %.3f MB needed, the limit is %.3f MB: weights without experts %.3f + "
                       "session %.3f + one expert %.3f",
                       device.name(), megabytes(rest + session_bytes + largest), megabytes(limit),
                       megabytes(rest), megabytes(session_bytes), megabytes(largest));
}

Status Model::Impl::prepare(uint64_t session_bytes) {
  if (ready.load(std::memory_order_acquire)) return {};
  LockGuard guard(mutex);
  if (ready.load(std::memory_order_relaxed)) return {};
  MOE_TRY(check_room(session_bytes));
  const Span<const FileSegment> segments = file->segments();
  for (size_t i = 0; i < segments.size; ++i) {
    if (segments[i].part == Part::kExperts) continue;
    const BlobLoader loader{*file, device, allocator, options.verify,
                            experts_of(segments[i].layer)};
    MOE_TRY(blobs[i].load(loader, segments[i]));
  }
  for (size_t i = 0; i < segments.size; ++i) {
    const FileSegment& s = segments[i];
    LayerWeights* layer = s.layer < 0 ? nullptr : &layers[static_cast<size_t>(s.layer)];
    if (s.part == Part::kExperts) continue;
    bind_part(file->layout(s), s.part, blobs[i].base(), norm_of(config), &common, layer);
  }
  if (config.tie_embeddings) common.head = common.embedding;
  ready.store(true, std::memory_order_release);
  return {};
}

Status Model::Impl::verify() const {
  for (const FileSegment& segment : file->segments()) {
    const BlobLoader loader{*file, device, allocator, true, experts_of(segment.layer)};
    Blob blob;
    MOE_TRY(blob.load(loader, segment));
  }
  return {};
}

Model::Model(Box<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<Box<Model>> Model::open(Box<MoeFile> file, const ModelOptions& options, Device& device,
                               const Logger& logger, const Allocator& allocator) {
  MOE_ASSIGN(Box<Impl> impl,
             make_box<Impl>(allocator, std::move(file), options, device, logger, allocator));
  MOE_TRY(impl->open());
  return make_box<Model>(allocator, std::move(impl));
}

Status Model::prepare(uint64_t session_bytes) const { return impl_->prepare(session_bytes); }
bool Model::experts_stay() const { return !impl_->cache.scarce(); }
bool Model::make_room(uint64_t bytes) const {
  ExpertCache& cache = impl_->cache;
  if (!cache.evicts()) return false;
  LockGuard guard(cache.mutex);
  return cache.make_room(bytes);
}
ExpertStats Model::expert_stats() const { return {}; }
MemoryStats Model::memory_stats() const { return {}; }
uint64_t Model::next_number() const { return impl_->numbers.fetch_add(1) + 1; }
Status Model::verify() const { return impl_->verify(); }

const ModelConfig& Model::config() const { return impl_->config; }
Device& Model::device() const { return impl_->device; }
const Allocator& Model::allocator() const { return impl_->allocator; }
const ModelWeights& Model::weights() const { return impl_->common; }
const LayerWeights& Model::layer(int32_t index) const {
  return impl_->layers[static_cast<size_t>(index)];
}
const fbs::Tokenizer* Model::tokenizer() const { return impl_->file->metadata().tokenizer(); }
const MoeFile& Model::file() const { return *impl_->file; }

uint64_t Model::weight_bytes() const { return impl_->account.weight_bytes; }
Span<const MemoryLine> Model::memory_lines() const {
  return {impl_->account.lines, impl_->account.n_lines};
}
uint64_t Model::reading_bytes() const { return impl_->account.reading_bytes; }
uint64_t Model::largest_expert_bytes() const { return impl_->account.largest_expert; }
uint64_t Model::bytes_per_token() const { return impl_->account.bytes_per_token; }
uint64_t Model::n_parameters() const { return impl_->account.n_parameters; }
uint64_t Model::n_active_parameters() const { return impl_->account.n_active_parameters; }

}  // namespace moe
