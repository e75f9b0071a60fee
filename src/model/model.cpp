// SPDX-License-Identifier: MIT
#include "src/model/model.h"

#include <atomic>
#include <cinttypes>

#include "src/base/mutex.h"
#include "src/model/account.h"
#include "src/model/bind.h"
#include "src/model/blob.h"
#include "src/model/check.h"
#include "src/model/config_read.h"
#include "src/model/expert_arena.h"
#include "src/model/latent_matrices.h"
#include "src/model/offloaded_experts.h"
#include "src/model/resident_experts.h"

namespace moe {
namespace {

// Experts of one layer, resident or offloaded.
struct LayerStore {
  explicit LayerStore(const BlobLoader& l) : loader(l) {}
  BlobLoader loader;
  Box<ResidentExperts> resident;
  Box<OffloadedExperts> offloaded;
};

bool all_in_place(const MoeFile& file) {
  for (const FileSegment& s : file.segments()) {
    if (s.part == Part::kExperts && file.in_place(s) == nullptr) return false;
  }
  return true;
}

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
        stores(a),
        blobs(a) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (cache) cache->stop_readers();
  }

  Status open();
  Status open_cache();
  void count_file();
  Status open_layer(int32_t index);
  Status prepare(uint64_t device_bytes, uint64_t cache_bytes);
  Status check_room(uint64_t session_bytes);
  Status load_weights();
  void bind_weights();
  Status start_cache(uint64_t cache_bytes);
  Status resize_cache(uint64_t cache_bytes);
  Status make_latent();
  Status verify_segments() const;
  Status verify();
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
  ExpertCacheShape shape;
  Box<ExpertArena> arena;         // for an expert cache in host memory
  Box<ExpertCache> cache;         // for offloaded experts
  Array<Box<LayerStore>> stores;  // empty for dense layers

  Mutex mutex;        // guards blobs, binding and byte counts
  Array<Blob> blobs;  // by segment; the stores own the experts' blobs
  Box<LatentMatrices> latent;
  std::atomic<bool> ready{false};
  std::atomic<const LatentMatrices*> latent_ready{nullptr};
  std::atomic<uint64_t> numbers{0};
  uint64_t counted_bytes = 0;
  uint64_t peak_bytes = 0;
};

int32_t Model::Impl::experts_of(int32_t layer) const {
  if (layer < 0) return 0;
  const FfnConfig& ffn = config.layers[static_cast<size_t>(layer)].ffn;
  return ffn.kind == FfnKind::kMoe ? ffn.moe.n_experts : 0;
}

Status Model::Impl::open() {
  MOE_TRY(read_config(*file->metadata().config(), &config));
  MOE_TRY(validate(config));
  if (config.is_encoder_decoder() && !device.uses_host_memory()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model is an encoder-decoder, which runs only on the CPU "
                         "(--device cpu): the device is %s",
                         device.name());
  }
  MOE_TRY(check_tensors(*file, config));
  account = account_model(*file, config);
  MOE_TRY(layers.resize(config.layers.size()));
  MOE_TRY(stores.resize(config.layers.size()));
  MOE_TRY(blobs.resize(file->segments().size()));
  MOE_TRY(open_cache());
  count_file();
  for (int32_t l = 0; l < config.n_layers(); ++l) MOE_TRY(open_layer(l));
  logger.log(LogLevel::kDebug, "opened %s: %d layers, %zu segments", config.name.c_str(),
             config.n_layers(), file->segments().size());
  return {};
}

// Experts already in host memory are used there and count in full.
Status Model::Impl::open_cache() {
  ExpertMemory* memory = device.expert_memory();
  if (memory == nullptr) {
    const bool fits = options.memory_cap == 0 || account.n_experts == 0;
    if (fits || !device.uses_host_memory() || all_in_place(*file)) return {};
    constexpr uint64_t kBookkeeping = 4096;
    constexpr uint64_t kAlign = ExpertArena::kAlign;
    if (account.largest_expert > SIZE_MAX / 2) return out_of_memory("expert", SIZE_MAX);
    shape.slot_bytes = round_up(account.largest_expert, kAlign);
    shape.most_slots = account.n_experts;
    shape.reader_bytes = kBookkeeping + static_cast<uint64_t>(options.n_readers) *
                                            (account.expert_scratch + ExpertReaders::kThreadBytes);
    account.lines[ModelAccount::kExpertLine].bytes = 0;
    MOE_ASSIGN(arena,
               make_box<ExpertArena>(allocator, allocator, static_cast<size_t>(shape.slot_bytes),
                                     static_cast<size_t>(shape.most_slots)));
    memory = arena.get();
  }
  MOE_ASSIGN(cache, make_box<ExpertCache>(allocator, *memory, allocator));
  cache->set_scarce(arena.get() != nullptr);
  cache->set_filling(arena.get() != nullptr && options.fill_cache);
  return {};
}

// Data decompressed or copied from a mapped or in-memory file is in memory twice.
void Model::Impl::count_file() {
  if (!file->in_memory() || !device.uses_host_memory()) return;
  MemoryLine& line = account.lines[ModelAccount::kFile];
  line.what = "compressed weights in the file";
  for (const FileSegment& s : file->segments()) {
    const bool copied = file->in_place(s) == nullptr || (arena && s.part == Part::kExperts);
    if (copied) line.bytes += s.stored;
  }
}

Status Model::Impl::open_layer(int32_t index) {
  const int32_t n_experts = experts_of(index);
  if (n_experts == 0) return {};
  const auto l = static_cast<size_t>(index);
  MOE_ASSIGN(stores[l], make_box<LayerStore>(allocator, BlobLoader{*file, device, allocator,
                                                                   options.verify, n_experts}));
  LayerStore& store = *stores[l];
  for (const BlobMatrix& m : file->layout(*file->find(Part::kRouter, index, -1)).matrices) {
    if (m.role == Role::kProj) layers[l].d_e = m.rows;
  }
  const int32_t n_sublayers = config.layers[l].ffn.moe.n_sublayers;
  if (cache) {
    MOE_ASSIGN(store.offloaded, make_box<OffloadedExperts>(allocator, allocator));
    layers[l].experts = store.offloaded.get();
    return store.offloaded->open(store.loader, *cache, index, n_sublayers, norm_of(config));
  }
  MOE_ASSIGN(store.resident, make_box<ResidentExperts>(allocator, allocator));
  layers[l].experts = store.resident.get();
  return store.resident->open(store.loader, index, n_sublayers, norm_of(config));
}

// On a device with a memory limit: all experts resident, or offloaded through the remaining memory.
Status Model::Impl::check_room(uint64_t session_bytes) {
  const uint64_t limit = device.memory_limit();
  if (limit == 0) return {};
  constexpr uint64_t kEntry = 512;  // device memory per network besides its weights
  uint64_t rest = 0;
  uint64_t experts = 0;
  const auto taken = [&](uint64_t bytes) { return device.expert_memory()->taken_by(bytes); };
  const uint64_t largest = taken(account.largest_expert);
  for (const FileSegment& s : file->segments()) {
    if (s.part != Part::kExperts) {
      rest += taken(s.raw);
      continue;
    }
    const int32_t blocks = config.layers[static_cast<size_t>(s.layer)].ffn.moe.n_sublayers;
    experts += taken(s.raw) + kEntry * static_cast<uint64_t>(std::max(1, blocks));
  }
  const bool scarce = rest + session_bytes + experts > limit;
  if (rest + session_bytes + largest <= limit) {
    if (cache) cache->set_scarce(scarce);
    return {};
  }
  const auto megabytes = [](uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  return Status::error(MOE_ERR_BUDGET,
                       "%s: %.3f MB needed, the limit is %.3f MB: weights without experts %.3f + "
                       "session %.3f + one expert %.3f",
                       device.name(), megabytes(rest + session_bytes + largest), megabytes(limit),
                       megabytes(rest), megabytes(session_bytes), megabytes(largest));
}

Status Model::Impl::load_weights() {
  const std::span<const FileSegment> segments = file->segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].part == Part::kExperts) continue;
    const BlobLoader loader{*file, device, allocator, options.verify,
                            experts_of(segments[i].layer)};
    MOE_TRY(blobs[i].load(loader, segments[i]));
  }
  return {};
}

void Model::Impl::bind_weights() {
  const std::span<const FileSegment> segments = file->segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const FileSegment& s = segments[i];
    LayerWeights* layer = s.layer < 0 ? nullptr : &layers[static_cast<size_t>(s.layer)];
    if (s.part == Part::kExperts) continue;
    bind_part(file->layout(s), s.part, blobs[i].base(), norm_of(config), &common, layer);
  }
  if (config.tie_embeddings) common.head = common.embedding;
  common.transformed_head.down = common.head;
  common.transformed_head.down_bias = common.head_bias;
}

Status Model::Impl::start_cache(uint64_t cache_bytes) {
  Status status = resize_cache(cache_bytes);
  if (status.ok()) {
    const auto scratch = static_cast<size_t>(account.expert_scratch);
    status = cache->start_readers(options.n_readers, scratch);
  }
  if (status.ok()) return {};
  cache->stop_readers();
  (void)cache->make_room(~uint64_t{0});  // they may have begun to fill it
  (void)arena->resize(0);
  return status;
}

Status Model::Impl::resize_cache(uint64_t cache_bytes) {
  const uint64_t wanted = cache_bytes / shape.slot_bytes;
  const auto n = static_cast<size_t>(std::clamp<uint64_t>(wanted, 1, shape.most_slots));
  const Status status =
      cache->reshape([&] { return arena->resize(n); }, [&] { return !arena->shrinking(); },
                     [&](const void* expert) { return arena->leaves(expert); });
  LockGuard guard(cache->mutex);
  return arena->n_slots() > 0 ? Status() : status;  // fewer slots than allowed are acceptable
}

Status Model::Impl::prepare(uint64_t device_bytes, uint64_t cache_bytes) {
  if (!ready.load(std::memory_order_acquire)) {
    LockGuard guard(mutex);
    if (!ready.load(std::memory_order_relaxed)) {
      MOE_TRY(check_room(device_bytes));
      MOE_TRY(load_weights());
      if (arena) MOE_TRY(start_cache(cache_bytes));
      bind_weights();
      ready.store(true, std::memory_order_release);
      return {};
    }
  }
  return arena ? resize_cache(cache_bytes) : Status();
}

Status Model::Impl::make_latent() {
  if constexpr (kLatentCaches) {
    LockGuard guard(mutex);
    if (latent) return {};
    MOE_ASSIGN(Box<LatentMatrices> made, make_box<LatentMatrices>(allocator, allocator));
    MOE_TRY(made->init(device, config, layers, allocator));
    latent = std::move(made);
    latent_ready.store(latent.get(), std::memory_order_release);
  }
  return {};
}

Status Model::Impl::verify_segments() const {
  for (const FileSegment& segment : file->segments()) {
    const BlobLoader loader{*file, device, allocator, true, experts_of(segment.layer)};
    Blob blob;
    MOE_TRY(blob.load(loader, segment));
  }
  return {};
}

// Under a cap it takes memory that is not free from the expert cache. No session is created or
// freed meanwhile.
Status Model::Impl::verify() {
  const uint64_t cap = options.memory_cap;
  if (cap == 0) return verify_segments();
  uint64_t needed = 0;
  for (const FileSegment& s : file->segments()) {
    const bool read = !device.uses_host_memory() || file->in_place(s) == nullptr;
    if (read) needed = std::max(needed, s.raw + file->scratch_bytes(s));
  }
  needed += account.read_buffer;
  const uint64_t cache_bytes = arena ? shape.bytes(arena->n_slots()) : 0;
  uint64_t held = 0;
  {
    LockGuard guard(mutex);
    held = std::max(counted_bytes, account.lines[ModelAccount::kMetadata].bytes +
                                       account.lines[ModelAccount::kFile].bytes);
  }
  const uint64_t free = cap - std::min(cap, held);
  const uint64_t lent = needed - std::min(needed, free);
  const uint64_t spare = cache_bytes - std::min(cache_bytes, shape.slot_bytes);
  if (lent > spare) {
    return Status::error(MOE_ERR_BUDGET,
                         "verifying takes %" PRIu64
                         " bytes beside the sessions, the cap leaves %" PRIu64
                         ": verify before the first session, or with a larger cap",
                         needed, free + spare);
  }
  if (lent > 0) MOE_TRY(resize_cache(cache_bytes - lent));
  const Status status = verify_segments();
  if (lent > 0) (void)resize_cache(cache_bytes);
  LockGuard guard(mutex);
  peak_bytes = std::max(peak_bytes, held + needed - lent);
  return status;
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

Status Model::prepare(uint64_t device_bytes, uint64_t cache_bytes) const {
  return impl_->prepare(device_bytes, cache_bytes);
}
Status Model::make_latent_matrices() const { return impl_->make_latent(); }
const LatentMatrices* Model::latent_matrices() const {
  return impl_->latent_ready.load(std::memory_order_acquire);
}
uint64_t Model::latent_matrix_bytes(bool wanted) const {
  if constexpr (kLatentCaches) {
    if (wanted || latent_matrices() != nullptr) return LatentMatrices::bytes(impl_->config);
  }
  return 0;
}
bool Model::experts_stay() const { return !impl_->cache || !impl_->cache->scarce(); }
bool Model::make_room(uint64_t bytes) const {
  return impl_->cache && !impl_->arena && impl_->cache->make_room(bytes);
}

ExpertStats Model::expert_stats() const {
  return experts_stay() ? ExpertStats() : impl_->cache->stats();
}
MemoryStats Model::memory_stats() const {
  MemoryStats stats;
  stats.cap_bytes = impl_->options.memory_cap;
  if (stats.cap_bytes == 0) return stats;
  if (impl_->arena) {
    LockGuard guard(impl_->cache->mutex);
    stats.arena_bytes = impl_->shape.bytes(impl_->arena->n_slots());
    stats.expert_bytes = impl_->cache->expert_bytes();
    stats.filled_bytes = impl_->cache->filled_bytes();
  }
  LockGuard guard(impl_->mutex);
  stats.counted_bytes = impl_->counted_bytes;
  stats.peak_bytes = impl_->peak_bytes;
  return stats;
}
uint64_t Model::expert_weight_bytes() const {
  return impl_->account.lines[ModelAccount::kExpertLine].bytes;
}
uint64_t Model::memory_cap() const { return impl_->options.memory_cap; }
const ExpertCacheShape& Model::cache_shape() const { return impl_->shape; }
void Model::count_memory(uint64_t bytes) const {
  LockGuard guard(impl_->mutex);
  impl_->counted_bytes = bytes;
  impl_->peak_bytes = std::max(impl_->peak_bytes, bytes);
}
void Model::set_cache_bytes(uint64_t bytes) const {
  if (impl_->arena) (void)impl_->resize_cache(bytes);
}
void Model::session_gone(uint64_t bytes) const {
  if (impl_->options.memory_cap == 0) return;
  const MemoryStats before = memory_stats();
  if (impl_->arena) (void)impl_->resize_cache(before.arena_bytes + bytes);
  count_memory(before.counted_bytes - bytes + memory_stats().arena_bytes - before.arena_bytes);
}
void Model::set_table_bytes(uint64_t bytes) {
  MemoryLine& line = impl_->account.lines[ModelAccount::kMetadata];
  line = {"metadata and tables", std::max(line.bytes, bytes)};
}
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
std::span<const MemoryLine> Model::memory_lines() const {
  return {impl_->account.lines, impl_->account.n_lines};
}
uint64_t Model::reading_bytes() const {
  return impl_->account.weight_scratch + impl_->account.read_buffer;
}
uint64_t Model::expert_reading_bytes() const {
  const ModelAccount& account = impl_->account;
  if (!impl_->arena) return account.expert_scratch + account.read_buffer;
  return impl_->options.n_readers > 0 ? 0 : account.expert_scratch;
}
uint64_t Model::largest_expert_bytes() const { return impl_->account.largest_expert; }
uint64_t Model::bytes_per_token() const { return impl_->account.bytes_per_token; }
uint64_t Model::n_parameters() const { return impl_->account.n_parameters; }
uint64_t Model::n_active_parameters() const { return impl_->account.n_active_parameters; }

}  // namespace moe
