// SPDX-License-Identifier: MIT
#pragma once
// A loaded model: configuration, typed weights, the location of each expert, and its memory budget.
// Any number of sessions on any threads share it.

#include "kernels/device.h"
#include "kernels/expert_source.h"
#include "kernels/row_source.h"
#include "src/base/log.h"
#include "src/base/os/clock.h"
#include "src/base/thread_pool.h"
#include "src/model/budget.h"
#include "src/model/config.h"

namespace moe {

namespace fbs {
struct Tokenizer;
}

class MoeFile;         // formats/moe/reader.h
class LatentMatrices;  // src/model/latent_matrices.h

/// kNone: no such norm.
struct BlockNormWeights {
  Norm pre, out, post;
};

struct AttentionWeights {
  BlockNormWeights norms;
  Matrix q, k, v,
      o;  // (n_heads * head_dim, d) (n_kv_heads * head_dim, d) twice, (d, n_heads * head_dim)
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const float* o_bias = nullptr;
  Norm q_norm, k_norm;
  Norm sub_norm;
  Norm q_in_norm, k_in_norm, v_in_norm;
  const float* sinks = nullptr;  // (n_heads)
  Matrix output_gate;            // (n_heads * head_dim, d), by head (n_heads, d), or empty
  const float* output_gate_bias = nullptr;
  Matrix latent;  // (latent + rope.dims, d), and k, v are (.., latent); or empty
  Norm latent_norm;
  Matrix k_rope;    // (n_kv_heads * head_dim, rope.dims)
  Matrix q_latent;  // (q_latent, d), and q is (.., q_latent); or empty
  Norm q_latent_norm;
};

/// By index of MixerInfo::weights: a matrix or a vector.
struct MixerWeights {
  BlockNormWeights norms;
  Matrix matrices[kMaxMixerWeights];
  const float* vectors[kMaxMixerWeights] = {};
};

/// A layer that guesses tokens has these too (ModelConfig::n_predictions).
struct PredictionWeights {
  Norm next_norm, hidden_norm;
  Matrix next, hidden;  // (d, d)
  Norm norm;
};

struct LayerWeights {
  AttentionWeights attention;
  AttentionWeights cross;         // norms, q, k, v, o and their biases
  MixerWeights* mixer = nullptr;  // layers with one; set on open
  BlockNormWeights ffn_norms;
  Ffn ffn;  // the dense FFN, or an MoE layer's shared expert (empty `up`: none)
  Matrix shared_gate;
  Norm shared_out_norm, experts_norm, experts_out_norm;  // of networks that are apart
  Norm router_norm;
  Norm gate_in_norm, up_in_norm;  // of a dense FFN
  Matrix input_gate, input_down;  // (layer_input.width, d) (d, layer_input.width) or empty
  Norm input_out_norm;
  PredictionWeights prediction;         // layers that guess
  const float* expert_scale = nullptr;  // (n_experts) or null
  Matrix head, merge;                   // MH-MoE
  const float* head_bias = nullptr;
  const float* merge_bias = nullptr;
  RouterWeightsView router;
  int32_t d_e = 0;                  // cosine routers; set on open
  ExpertSource* experts = nullptr;  // MoE layers; set on open
};

/// Weights outside layers.
struct ModelWeights {
  Matrix embedding;           // (vocab, d)
  Matrix position_embedding;  // (context, d) or empty
  Matrix second_positions;    // the same for the second of two texts
  Matrix layer_inputs;        // (vocab, n_layers * layer_input.width) or empty, like the next
  // Where these are set their tables stay in the file, and the matrices are shapes.
  RowSource* embedding_rows = nullptr;
  RowSource* layer_input_rows = nullptr;
  Matrix layer_projection;  // (n_layers * layer_input.width, d)
  Norm layer_projection_norm;
  Norm embedding_norm;      // kNone if absent; the same for the other norms
  Matrix source_positions;  // (source_length, d) or empty, like the next two; encoder-decoders
  Norm source_embedding_norm;
  Norm encoder_norm;
  Norm final_norm;
  Matrix head;  // (n_outputs, d): the embedding itself when tied
  const float* head_bias = nullptr;
  Ffn transformed_head;  // dense layer as `up`, its norm, and the head as `down`; or empty
};

inline constexpr int32_t kExpertReaders = 4;

struct ModelOptions {
  bool verify = true;                  // verify every segment's checksum on reading
  uint64_t memory_bytes = 0;           // cap of the model's budget; 0: none
  int32_t n_readers = kExpertReaders;  // threads that read offloaded experts
  bool fill_cache = false;             // they also read ahead what no token has chosen yet
  Clock clock = system_clock();        // measures the time of waits and of generation
};

/// Experts that are cached in host memory, in slots of equal size.
struct ExpertCacheShape {
  uint64_t slot_bytes = 0;    // 0: no cache; all experts are resident
  uint64_t most_slots = 0;    // enough for all experts
  uint64_t reader_bytes = 0;  // of the reader threads
  uint64_t bytes(uint64_t n_slots) const { return n_slots * slot_bytes; }
};

/// The use of the expert cache in host memory. All zero without one.
struct ExpertCacheUse {
  uint64_t arena_bytes = 0;   // capacity
  uint64_t expert_bytes = 0;  // experts in it
  uint64_t filled_bytes = 0;  // read because there was room, not for a miss
};

/// An object that another part of the library keeps with a model, destroyed before it.
struct Attachment {
  void* object = nullptr;
  void (*destroy)(void* object) = nullptr;
};

class Model final {
 public:
  /// Validates the configuration and every tensor's shape, format and presence from metadata;
  /// weights are read on first use. Segments in memory (FileSource::map or from_memory) are used in
  /// place if the device can. Takes ownership of `file`; `device`, `logger` and `allocator` must
  /// outlive the model.
  static Result<Box<Model>> open(Box<MoeFile> file, const ModelOptions& options, Device& device,
                                 const Logger& logger, const Allocator& allocator);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Loads all weights except experts, which are loaded on acquire. Sessions call it before using
  /// weights; any thread. On failure the model is unchanged. On a device with a memory limit, the
  /// first call decides whether all experts can be resident next to `device_bytes` of a session;
  /// MOE_ERR_BUDGET with the itemised sum if not even one fits.
  Status prepare(uint64_t device_bytes = 0);
  /// Starts the expert cache, if there is one: it takes what the budget has left. Call after
  /// prepare(); any thread. MOE_ERR_MEMORY.
  Status start_cache();
  /// Creates the matrices that sessions with a latent KV cache need; call after prepare(). The
  /// first call creates them for the model's lifetime and keeps `memory`, which holds
  /// latent_matrix_bytes(true). Any thread. MOE_ERR_UNSUPPORTED, MOE_ERR_MEMORY.
  Status make_latent_matrices(Reservation memory);
  const LatentMatrices* latent_matrices() const;  // null until then
  /// Their size, or what it would be if `wanted`.
  uint64_t latent_matrix_bytes(bool wanted) const;
  /// False once prepare() has decided to offload experts from the device's memory.
  bool experts_stay() const;
  /// If `status` says that memory is missing: evicts idle experts from device memory, least
  /// recently used first, until `bytes` are evicted or none is left. True if any were, so that it
  /// is worth trying again. Any thread.
  bool make_room_after(const Status& status, uint64_t bytes);
  /// All sessions since the model was opened. Any thread.
  ExpertStats expert_stats() const;
  /// Counts everything that the model and its sessions take.
  Budget& budget();
  const Budget& budget() const;
  ExpertCacheUse cache_use() const;
  const ExpertCacheShape& cache_shape() const;
  /// Bytes that a cap could save, at least: of experts that are read again and tables that stay in
  /// the file. 0 under a cap.
  uint64_t spare_bytes() const;
  /// Memory allocated by opening the model; the account shows it instead of the metadata size.
  void set_table_bytes(uint64_t bytes);
  /// The object that make() returned to the first call. Any thread.
  Result<void*> attached(Result<Attachment> (*make)(Model& model));
  /// A unique number, to distinguish objects that would otherwise look equal.
  uint64_t next_number();
  /// Verifies every checksum, code and scale of the file, whatever options.verify says.
  Status verify();

  const ModelConfig& config() const;
  Device& device() const;
  const Allocator& allocator() const;
  const Clock& clock() const;

  // Weights: empty until prepare().
  const ModelWeights& weights() const;
  const LayerWeights& layer(int32_t index) const;
  const fbs::Tokenizer* tokenizer() const;  // null: token ids only
  const MoeFile& file() const;              // for inspect

  uint64_t weight_bytes() const;                     // all weights in memory, padding included
  std::span<const MemoryLine> memory_lines() const;  // uncached weights by kind, and metadata
  /// Upper bound of the temporary memory for reading one segment: a frame, zstd's state, a buffer
  /// for direct reads. Applies to prepare() and to sessions, which read one expert at a time.
  uint64_t reading_bytes() const;
  uint64_t expert_reading_bytes() const;
  /// Bytes that the model has beside its expert cache and the matrices for latent caches: the lines
  /// above, readers, buffers for reading experts and for uploads.
  uint64_t own_bytes() const;
  uint64_t staging_bytes() const;  // buffers for asynchronous uploads
  uint64_t largest_expert_bytes() const;
  /// Bytes of weights read per token with k experts (the router's number; threshold: max_k). MH-MoE
  /// takes k experts per sub-token.
  uint64_t bytes_per_token() const;
  uint64_t n_parameters() const;
  uint64_t n_active_parameters() const;  // the parameters counted by bytes_per_token()

 private:
  struct Impl;
  template <class T, class... Args>
  friend Result<Box<T>> make_box(const Allocator&, Args&&...);
  explicit Model(Box<Impl> impl);
  Box<Impl> impl_;
};

}  // namespace moe
