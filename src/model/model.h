#pragma once
// A loaded model: configuration, typed weights, where each expert lives. Immutable after open():
// any number of sessions on any threads share it.

#include "kernels/device.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"
#include "src/model/config.h"
#include "src/model/expert_stats.h"

namespace moe {

namespace fbs {
struct Tokenizer;
}

class MoeFile;         // formats/moe/reader.h
class LatentMatrices;  // src/model/latent_matrices.h

/// kNone: there is no such norm.
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
  const float* sinks = nullptr;  // (n_heads)
  Matrix latent;                 // (latent + rope.dims, d), and k, v are (.., latent); or empty
  Norm latent_norm;
  Matrix k_rope;    // (n_kv_heads * head_dim, rope.dims)
  Matrix q_latent;  // (q_latent, d), and q is (.., q_latent); or empty
  Norm q_latent_norm;
};

struct LayerWeights {
  AttentionWeights attention;
  AttentionWeights cross;  // norms, q, k, v, o and their biases
  BlockNormWeights ffn_norms;
  Ffn ffn;  // the dense FFN, or the shared expert of an MoE layer (empty `up`: none)
  Matrix shared_gate;
  Matrix head, merge;  // MH-MoE
  const float* head_bias = nullptr;
  const float* merge_bias = nullptr;
  RouterWeightsView router;
  int32_t d_e = 0;                  // cosine routers; known from the start
  ExpertSource* experts = nullptr;  // MoE layers; there from the start
};

/// What belongs to no layer.
struct ModelWeights {
  Matrix embedding;           // (vocab, d)
  Matrix position_embedding;  // (context, d) or empty
  Norm embedding_norm;        // kNone when there is none; so for the other norms
  Matrix source_positions;  // (source_length, d) or empty; so, of an encoder-decoder, the next two
  Norm source_embedding_norm;
  Norm encoder_norm;
  Norm final_norm;
  Matrix head;  // (n_outputs, d): the embedding itself when tied
  const float* head_bias = nullptr;
  Ffn transformed_head;  // a dense layer as `up`, its norm, and the head as `down`; or empty
};

/// One line of the memory account: what is held and how many bytes.
struct MemoryLine {
  const char* what;
  uint64_t bytes;
};

inline constexpr int32_t kExpertReaders = 4;

struct ModelOptions {
  bool verify = true;                  // check every segment's checksum when it is read
  uint64_t memory_cap = 0;             // bytes for the model and its sessions; 0: no cap
  int32_t n_readers = kExpertReaders;  // threads that read experts which a cap keeps out of memory
};

/// Under a memory cap experts are in a cache in host memory, in equal slots.
struct ExpertCacheShape {
  uint64_t slot_bytes = 0;    // 0: there is no cache, and every expert stays where it is
  uint64_t most_slots = 0;    // for all experts
  uint64_t reader_bytes = 0;  // of the threads that read them
  uint64_t bytes(uint64_t n_slots) const { return n_slots * slot_bytes; }
};

class Model final {
 public:
  /// Validates the configuration and every tensor's shape, format and presence, from metadata
  /// alone: weights are read when they are first needed. Segments that lie in memory
  /// (FileSource::map or from_memory) are used in place where the device can. `file` is taken over;
  /// `device`, `logger` and `allocator` must outlive the model.
  static Result<Box<Model>> open(Box<MoeFile> file, const ModelOptions& options, Device& device,
                                 const Logger& logger, const Allocator& allocator);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Brings in all weights but the experts', which come when they are acquired. Sessions call it
  /// before they touch a weight; any thread. A failure leaves the model as it was. On a device with
  /// a limit of its own, the first call decides whether all experts can stay beside `device_bytes`
  /// of a session; MOE_ERR_BUDGET with the sum when not even one can. With an expert cache, every
  /// call makes that `cache_bytes` large, one slot at least: when it shrinks, experts in use are
  /// waited for.
  Status prepare(uint64_t device_bytes = 0, uint64_t cache_bytes = 0) const;
  /// What sessions want whose cache holds the latent of keys and values; behind prepare(). The
  /// first call makes it, and it stays. Any thread. MOE_ERR_UNSUPPORTED, MOE_ERR_MEMORY.
  Status make_latent_matrices() const;
  const LatentMatrices* latent_matrices() const;  // null until then
  /// What they take, or would where they are `wanted`.
  uint64_t latent_matrix_bytes(bool wanted) const;
  /// False once prepare() has found that experts must be offloaded from the device's memory.
  bool experts_stay() const;
  /// Evicts idle experts from the device's memory, least recently used first, until `bytes` of them
  /// are gone or none is left. False when there were none. Any thread.
  bool make_room(uint64_t bytes) const;
  /// Of all sessions since the model was opened. Any thread.
  ExpertStats expert_stats() const;
  MemoryStats memory_stats() const;
  uint64_t memory_cap() const;
  uint64_t expert_weight_bytes() const;  // that are counted; 0 with an expert cache
  const ExpertCacheShape& cache_shape() const;
  /// For memory_stats(): what counts against the cap from now on.
  void count_memory(uint64_t bytes) const;
  /// The expert cache may have so many bytes from now on.
  void set_cache_bytes(uint64_t bytes) const;
  /// A session has gone: the expert cache may have its memory.
  void session_gone(uint64_t bytes) const;
  /// What was allocated to open the model, for the account: instead of the metadata alone.
  void set_table_bytes(uint64_t bytes);
  /// A number that was not given before: tells apart what would else look the same.
  uint64_t next_number() const;
  /// Checks every checksum, code and scale of the file, whatever options.verify says.
  Status verify() const;

  const ModelConfig& config() const;
  Device& device() const;
  const Allocator& allocator() const;

  // Weights: empty until prepare().
  const ModelWeights& weights() const;
  const LayerWeights& layer(int32_t index) const;
  const fbs::Tokenizer* tokenizer() const;  // null: ids only
  const MoeFile& file() const;              // for inspect

  uint64_t weight_bytes() const;                     // all of them in memory, padding included
  std::span<const MemoryLine> memory_lines() const;  // weights by kind but a cache's, and metadata
  /// At most what reading one segment takes beside the weights that come out: a frame, the state of
  /// zstd, a buffer of direct reads. Of prepare(), and of a session, which reads one expert at a
  /// time.
  uint64_t reading_bytes() const;
  uint64_t expert_reading_bytes() const;
  uint64_t largest_expert_bytes() const;
  /// Bytes of weights read for one token when k experts (the router's own number; threshold: max_k)
  /// are taken. MH-MoE takes k experts for each of its sub-tokens.
  uint64_t bytes_per_token() const;
  uint64_t n_parameters() const;
  uint64_t n_active_parameters() const;  // those behind bytes_per_token()

 private:
  struct Impl;
  template <class T, class... Args>
  friend Result<Box<T>> make_box(const Allocator&, Args&&...);
  explicit Model(Box<Impl> impl);
  Box<Impl> impl_;
};

}  // namespace moe
