// SPDX-License-Identifier: MIT
// Opens a model file: checks it, loads the weights, decides which experts are resident and which
// are offloaded, and sets up the budget.
#include "src/model/model.h"

#include <atomic>
#include <cinttypes>

#include "quant/formats.h"
#include "src/base/mutex.h"
#include "src/base/os/threads.h"
#include "src/model/account.h"
#include "src/model/bind.h"
#include "src/model/blob.h"
#include "src/model/check.h"
#include "src/model/config_read.h"
#include "src/model/expert_arena.h"
#include "src/model/latent_matrices.h"
#include "src/model/offloaded_experts.h"
#include "src/model/resident_experts.h"
#include "src/model/row_lengths.h"
#include "src/model/row_table.h"

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

// Sizes the expert cache by its slots in host memory.
class CacheTenant final : public LastTenant {
 public:
  CacheTenant(const ExpertCacheShape& shape, const Box<ExpertArena>& arena,
              const Box<ExpertCache>& cache)
      : shape_(shape), arena_(arena), cache_(cache) {}

  uint64_t least_bytes() const override { return shape_.slot_bytes; }
  Status fit(uint64_t bytes) override {
    const uint64_t wanted = bytes / shape_.slot_bytes;
    const auto n = static_cast<size_t>(std::clamp<uint64_t>(wanted, 1, shape_.most_slots));
    const Status status =
        cache_->reshape([&] { return arena_->resize(n); }, [&] { return !arena_->shrinking(); },
                        [&](const void* expert) { return arena_->leaves(expert); });
    LockGuard guard(cache_->mutex);
    return arena_->n_slots() > 0 ? Status() : status;  // fewer slots than allowed are acceptable
  }
  uint64_t bytes() const override {
    LockGuard guard(cache_->mutex);
    return shape_.bytes(arena_->n_slots());
  }

 private:
  const ExpertCacheShape& shape_;
  const Box<ExpertArena>& arena_;
  const Box<ExpertCache>& cache_;
};

}  // namespace

struct Model::Impl {
  Impl(Box<MoeFile> f, const ModelOptions& o, Device& d, const Logger& l, const Allocator& a)
      : file(std::move(f)),
        options(o),
        device(d),
        logger(l),
        allocator(a),
        budget(o.memory_bytes),
        config(a),
        rotations(a),
        latent_memory(budget),
        layers(a),
        mixers(a),
        tenant(shape, arena, cache),
        stores(a),
        blobs(a),
        tables{RowTable(a), RowTable(a)},
        embedding_lengths(a) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (attachment.object != nullptr) attachment.destroy(attachment.object);
    if (!budget.forked()) budget.stop();
    if (cache) cache->stop_readers();
  }

  Status open();
  Status check_mixers() const;
  Status check_extras() const;
  void drop_predictions();
  bool in_use(const FileSegment& segment) const { return segment.layer < config.n_layers(); }
  Status place_mixers();
  Status open_cache();
  Status open_arena();
  bool stays_in_file(const FileSegment& segment) const;
  RowTable* table_of(const FileSegment& segment);
  Status open_tables();
  void count_file();
  Status open_layer(int32_t index);
  Status prepare(uint64_t device_bytes);
  Status check_room(uint64_t session_bytes);
  Status load_weights();
  void bind_weights();
  void set_latent_eps(int32_t layer);
  Status reserve_lengths();
  Status measure_embeddings();
  Status start_cache();
  Status make_latent(Reservation memory);
  uint64_t own_bytes() const;
  uint64_t expert_reading_bytes() const;
  uint64_t staging_bytes() const;
  Status verify_segments();
  Status verify();
  int32_t experts_of(int32_t layer) const;

  Box<MoeFile> file;
  ModelOptions options;
  Device& device;
  Logger logger;
  const Allocator& allocator;
  Budget budget;
  ModelConfig config;
  Rotations rotations;
  ModelAccount account;
  Reservation latent_memory;

  ModelWeights common;
  Array<LayerWeights> layers;
  Array<MixerWeights> mixers;  // of the layers that have one
  ExpertCacheShape shape;
  Box<ExpertArena> arena;  // for an expert cache in host memory
  Box<ExpertCache> cache;  // for offloaded experts
  CacheTenant tenant;
  Array<Box<LayerStore>> stores;  // empty for dense layers

  Mutex loading;       // guards what is loaded once: blobs, binding, readers, the attachment
  Array<Blob> blobs;   // by segment; the stores own the experts' blobs
  RowTable tables[2];  // of token embeddings and of layer inputs; open if they stay in the file
  uint64_t spare_bytes = 0;      // see Model
  RowLengths embedding_lengths;  // of the cosine routers
  Box<LatentMatrices> latent;
  std::atomic<bool> ready{false};
  std::atomic<const LatentMatrices*> latent_ready{nullptr};
  std::atomic<uint64_t> numbers{0};
  bool caching = false;
  Attachment attachment;
};

int32_t Model::Impl::experts_of(int32_t layer) const {
  if (layer < 0 || layer >= config.n_layers()) return 0;
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
  MOE_TRY(check_mixers());
  MOE_TRY(check_extras());
  MOE_TRY(check_tensors(*file, config));
  MOE_TRY(rotations.make(config.rotation));
  if (!device.uses_host_memory()) drop_predictions();
  account = account_model(*file, config);
  MOE_TRY(layers.resize(config.layers.size()));
  if constexpr (kHasMixers) MOE_TRY(place_mixers());
  MOE_TRY(stores.resize(config.layers.size()));
  MOE_TRY(blobs.resize(file->segments().size()));
  MOE_TRY(open_cache());
  MOE_TRY(open_tables());
  count_file();
  budget.expect(shape.slot_bytes);
  budget.set_own_bytes(own_bytes());
  for (int32_t l = 0; l < config.n_layers(); ++l) MOE_TRY(open_layer(l));
  MOE_TRY(reserve_lengths());
  logger.log(LogLevel::kDebug, "opened %s: %d layers, %zu segments", config.name.c_str(),
             config.n_layers(), file->segments().size());
  return {};
}

// Only the CPU guesses. Elsewhere the layer is as if it were not in the file, and takes no memory.
void Model::Impl::drop_predictions() {
  while (config.n_predictions > 0) {
    config.layers.pop();
    --config.n_predictions;
  }
  config.raw_predictions = false;
}

Status Model::Impl::check_mixers() const {
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    if (!kHasMixers || !layer.has_mixer || device.can_mix(layer.mixer.mixer.kind)) continue;
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "layer %d is a %s, which runs only on the CPU (--device cpu): the device "
                         "is %s",
                         l, mixer_info(layer.mixer.mixer).name, device.name());
  }
  return {};
}

Status Model::Impl::check_extras() const {
  if (config.layer_input.width > 0 && !device.has_layer_extras()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model has embeddings for each layer, which are used only on the CPU "
                         "(--device cpu): the device is %s",
                         device.name());
  }
  if (config.rotation.block > 0 && !device.has_layer_extras()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model's matrices read rotated inputs, which are computed only on the "
                         "CPU (--device cpu): the device is %s",
                         device.name());
  }
  for (int32_t l = 0; l < config.n_layers() && !device.has_layer_extras(); ++l) {
    const char* const extra = extra_of(config.layers[static_cast<size_t>(l)]);
    if (extra == nullptr) continue;
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "layer %d %s, which runs only on the CPU (--device cpu): the device is %s",
                         l, extra, device.name());
  }
  return {};
}

Status Model::Impl::place_mixers() {
  size_t n = 0;
  for (const LayerConfig& layer : config.layers) n += layer.has_mixer ? 1 : 0;
  MOE_TRY(mixers.resize(n));
  n = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (config.layers[l].has_mixer) layers[l].mixer = &mixers[n++];
  }
  return {};
}

// Experts already in host memory are used there and count in full.
Status Model::Impl::open_cache() {
  if (!system_has_threads()) options.n_readers = 0;  // they would never start, but be counted
  ExpertMemory* memory = device.expert_memory();
  if (memory == nullptr) {
    if (account.n_experts == 0 || !device.uses_host_memory() || all_in_place(*file)) return {};
    MOE_TRY(open_arena());
    if (!arena) return {};
    memory = arena.get();
  }
  MOE_ASSIGN(cache, make_box<ExpertCache>(allocator, *memory, allocator));
  cache->set_clock(options.clock);
  cache->set_scarce(arena.get() != nullptr);
  cache->set_filling(arena.get() != nullptr && options.fill_cache);
  return {};
}

// None if every expert may stay.
Status Model::Impl::open_arena() {
  constexpr uint64_t kBookkeeping = 4096;
  constexpr uint64_t kAlign = ExpertArena::kAlign;
  ExpertCacheShape possible;
  possible.slot_bytes = round_up(account.largest_expert, kAlign);
  possible.most_slots = account.n_experts;
  possible.reader_bytes =
      kBookkeeping + ExpertReaders::bytes(options.n_readers, account.expert_scratch);
  uint64_t& experts = account.lines[ModelAccount::kExpertLine].bytes;
  if (budget.unlimited()) {
    const uint64_t objects = sizeof(ExpertCache) + sizeof(ExpertArena) +
                             layers.size() * sizeof(OffloadedExperts) +
                             possible.most_slots * sizeof(CachedExpert);
    const uint64_t least = possible.slot_bytes + possible.reader_bytes + objects;
    spare_bytes = experts - std::min(experts, least);
    return {};
  }
  if (account.largest_expert > SIZE_MAX / 2) return out_of_memory("expert", SIZE_MAX);
  experts = 0;
  shape = possible;
  MOE_ASSIGN(arena,
             make_box<ExpertArena>(allocator, allocator, static_cast<size_t>(shape.slot_bytes),
                                   static_cast<size_t>(shape.most_slots)));
  return {};
}

// Tables of which a token needs one row. A matrix that is also the head is needed whole, and texts
// of encoders have positions that are added to the rows.
bool Model::Impl::stays_in_file(const FileSegment& segment) const {
  const bool rows_alone = config.positions != PositionKind::kLearned && !config.is_encoder() &&
                          !config.is_encoder_decoder();
  const bool table = segment.part == Part::kLayerInputs ||
                     (segment.part == Part::kEmbedding && !config.tie_embeddings && rows_alone);
  return table && device.uses_host_memory() && RowTable::can_read(*file, segment);
}

RowTable* Model::Impl::table_of(const FileSegment& segment) {
  for (RowTable& table : tables) {
    if (table.is_of(segment)) return &table;
  }
  return nullptr;
}

Status Model::Impl::open_tables() {
  MemoryLine& line = account.lines[ModelAccount::kRowLine];
  line.what = "rows of tables in the file";
  for (const FileSegment& s : file->segments()) {
    if (!stays_in_file(s)) continue;
    if (budget.unlimited()) {
      RowTable possible(allocator);
      MOE_TRY(possible.open(*file, s));
      spare_bytes += s.raw - std::min<uint64_t>(s.raw, possible.bytes());
      continue;
    }
    RowTable& table = tables[s.part == Part::kLayerInputs ? 1 : 0];
    MOE_TRY(table.open(*file, s));
    account.lines[ModelAccount::kEmbeddings].bytes -= s.raw;
    line.bytes += table.bytes();
  }
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
  if (embedding_lengths.bytes() > 0) rest += taken(embedding_lengths.bytes());
  for (const FileSegment& s : file->segments()) {
    if (!in_use(s)) continue;
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
    if (segments[i].part == Part::kExperts || !in_use(segments[i])) continue;
    if (RowTable* table = table_of(segments[i]); table != nullptr) {
      MOE_TRY(table->load(options.verify));
      continue;
    }
    const BlobLoader loader{*file, device, allocator, options.verify,
                            experts_of(segments[i].layer)};
    MOE_TRY(blobs[i].load(loader, segments[i]));
  }
  return {};
}

void Model::Impl::set_latent_eps(int32_t layer) {
  const auto l = static_cast<size_t>(layer);
  const float eps = config.layers[l].attention.latent_eps;
  if (eps == 0) return;
  layers[l].attention.latent_norm.eps = layers[l].attention.q_latent_norm.eps = eps;
}

void Model::Impl::bind_weights() {
  const std::span<const FileSegment> segments = file->segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    const FileSegment& s = segments[i];
    if (!in_use(s)) continue;
    LayerWeights* layer = s.layer < 0 ? nullptr : &layers[static_cast<size_t>(s.layer)];
    if (s.part == Part::kExperts) continue;
    bind_part(file->layout(s), s.part, blobs[i].base(), norm_of(config), &common, layer);
    if (RowTable* table = table_of(s); table != nullptr) {
      bind_part(table->rest(), s.part, table->rest_base(), norm_of(config), &common, layer);
      (s.part == Part::kLayerInputs ? common.layer_input_rows : common.embedding_rows) = table;
      table->set_rotation(rotations.of(config.d_model));
    }
    bind_rotations(file->layout(s), s.part, rotations, &common, layer);
    if (s.part == Part::kAttention) set_latent_eps(s.layer);
  }
  if (const float eps = config.layer_input.projection_eps; eps != 0) {
    common.layer_projection_norm.eps = eps;
  }
  if (config.tie_embeddings) common.head = common.embedding;
  common.transformed_head.down = common.head;
  common.transformed_head.down_bias = common.head_bias;
}

Status Model::Impl::reserve_lengths() {
  size_t n = 0;
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    if (layers[static_cast<size_t>(l)].d_e > 0) n += static_cast<size_t>(experts_of(l));
  }
  return embedding_lengths.reserve(device, n);
}

// A cosine router divides by the lengths of its embeddings, which never change.
Status Model::Impl::measure_embeddings() {
  embedding_lengths.clear();
  for (LayerWeights& layer : layers) {
    if (layer.d_e == 0) continue;
    RouterWeightsView& router = layer.router;
    MOE_TRY(embedding_lengths.measure(router.embedding, &router.embedding_length));
  }
  return {};
}

Status Model::Impl::start_cache() {
  if (!arena) return {};
  LockGuard guard(loading);
  if (caching) return {};
  Status status = budget.start(tenant);
  if (status.ok()) {
    const auto scratch = static_cast<size_t>(account.expert_scratch);
    status = cache->start_readers(options.n_readers, scratch);
    if (!status.ok()) {
      cache->stop_readers();
      (void)cache->make_room(~uint64_t{0});  // they may have begun to fill it
      budget.stop();
      (void)arena->resize(0);
    }
  }
  caching = status.ok();
  return status;
}

Status Model::Impl::prepare(uint64_t device_bytes) {
  if (ready.load(std::memory_order_acquire)) return {};
  LockGuard guard(loading);
  if (ready.load(std::memory_order_relaxed)) return {};
  MOE_TRY(check_room(device_bytes));
  MOE_TRY(load_weights());
  bind_weights();
  MOE_TRY(measure_embeddings());
  ready.store(true, std::memory_order_release);
  return {};
}

Status Model::Impl::make_latent(Reservation memory) {
  LockGuard guard(loading);
  if (latent) return {};
  MOE_ASSIGN(Box<LatentMatrices> made, make_box<LatentMatrices>(allocator, allocator));
  MOE_TRY(made->init(device, config, layers, allocator));
  latent = std::move(made);
  latent_memory.take(memory);
  latent_ready.store(latent.get(), std::memory_order_release);
  return {};
}

uint64_t Model::Impl::own_bytes() const {
  uint64_t bytes = shape.reader_bytes + expert_reading_bytes() + staging_bytes();
  for (size_t i = 0; i < account.n_lines; ++i) bytes += account.lines[i].bytes;
  return bytes;
}

uint64_t Model::Impl::expert_reading_bytes() const {
  if (!arena) return account.expert_scratch + account.read_buffer;
  return options.n_readers > 0 ? 0 : account.expert_scratch;
}

uint64_t Model::Impl::staging_bytes() const {
  const ExpertMemory* memory = device.expert_memory();
  return memory == nullptr ? 0 : memory->staging_bytes(account.largest_expert);
}

Status Model::Impl::verify_segments() {
  for (const FileSegment& segment : file->segments()) {
    if (RowTable* table = table_of(segment); table != nullptr) {
      MOE_TRY(table->verify());
      continue;
    }
    const BlobLoader loader{.file = *file,
                            .device = device,
                            .allocator = allocator,
                            .verify = true,
                            .n_experts = experts_of(segment.layer)};
    Blob blob;
    MOE_TRY(blob.load(loader, segment));
  }
  return {};
}

// Weights that are not loaded yet leave their room, and none are loaded meanwhile.
Status Model::Impl::verify() {
  if (budget.unlimited()) return verify_segments();
  uint64_t needed = 0;
  for (const FileSegment& s : file->segments()) {
    const bool read = !device.uses_host_memory() || file->in_place(s) == nullptr;
    if (read && table_of(s) == nullptr) needed = std::max(needed, s.raw + file->scratch_bytes(s));
  }
  needed += account.read_buffer;
  LockGuard guard(loading);
  uint64_t unloaded = 0;
  if (!ready.load()) {
    for (size_t i = 0; i < ModelAccount::kMetadata; ++i) unloaded += account.lines[i].bytes;
  }
  Reservation room(budget);
  MOE_TRY(budget.reserve({{&room, needed - std::min(needed, unloaded)}},
                         {.who = "a verification", .way_out = "verify before the first session"}));
  return verify_segments();
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

Status Model::prepare(uint64_t device_bytes) { return impl_->prepare(device_bytes); }
Status Model::start_cache() { return impl_->start_cache(); }
Status Model::make_latent_matrices(Reservation memory) {
  return impl_->make_latent(std::move(memory));
}
const LatentMatrices* Model::latent_matrices() const {
  return impl_->latent_ready.load(std::memory_order_acquire);
}
uint64_t Model::latent_matrix_bytes(bool wanted) const {
  if (wanted || latent_matrices() != nullptr) return LatentMatrices::bytes(impl_->config);
  return 0;
}
bool Model::experts_stay() const { return !impl_->cache || !impl_->cache->scarce(); }
bool Model::make_room_after(const Status& status, uint64_t bytes) {
  const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
  return full && impl_->cache && !impl_->arena && impl_->cache->make_room(bytes);
}

ExpertStats Model::expert_stats() const {
  return experts_stay() ? ExpertStats() : impl_->cache->stats();
}
Budget& Model::budget() { return impl_->budget; }
const Budget& Model::budget() const { return impl_->budget; }
ExpertCacheUse Model::cache_use() const {
  if (!impl_->arena) return {};
  LockGuard guard(impl_->cache->mutex);
  return {impl_->shape.bytes(impl_->arena->n_slots()), impl_->cache->expert_bytes(),
          impl_->cache->filled_bytes()};
}
uint64_t Model::spare_bytes() const { return impl_->spare_bytes; }
const ExpertCacheShape& Model::cache_shape() const { return impl_->shape; }
Result<void*> Model::attached(Result<Attachment> (*make)(Model& model)) {
  LockGuard guard(impl_->loading);
  if (impl_->attachment.object == nullptr) {
    MOE_ASSIGN(impl_->attachment, make(*this));
  }
  return impl_->attachment.object;
}
void Model::set_table_bytes(uint64_t bytes) {
  MemoryLine& line = impl_->account.lines[ModelAccount::kMetadata];
  line = {"metadata and tables", std::max(line.bytes, bytes)};
  impl_->budget.set_own_bytes(impl_->own_bytes());
}
uint64_t Model::next_number() { return impl_->numbers.fetch_add(1) + 1; }
Status Model::verify() { return impl_->verify(); }

const ModelConfig& Model::config() const { return impl_->config; }
Device& Model::device() const { return impl_->device; }
const Allocator& Model::allocator() const { return impl_->allocator; }
const Clock& Model::clock() const { return impl_->options.clock; }
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
uint64_t Model::expert_reading_bytes() const { return impl_->expert_reading_bytes(); }
uint64_t Model::own_bytes() const { return impl_->own_bytes(); }
uint64_t Model::staging_bytes() const { return impl_->staging_bytes(); }
uint64_t Model::largest_expert_bytes() const { return impl_->account.largest_expert; }
uint64_t Model::bytes_per_token() const { return impl_->account.bytes_per_token; }
uint64_t Model::n_parameters() const { return impl_->account.n_parameters; }
uint64_t Model::n_active_parameters() const { return impl_->account.n_active_parameters; }

}  // namespace moe
