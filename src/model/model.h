#pragma once
// A loaded model: configuration, typed weights, where each expert lives. Immutable after open():
// any number of sessions on any threads share it.

#include "kernels/device.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"
#include "src/model/config.h"

namespace moe {

namespace fbs {
struct Tokenizer;
}

class MoeFile;  // formats/moe/reader.h

struct AttentionWeights {
  Norm norm;
  Matrix q, k, v, o;  // (n_heads * head_dim, d) (n_kv_heads * head_dim, d) twice, (d, n_heads * head_dim)
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const float* o_bias = nullptr;
  Norm q_norm, k_norm;
  Norm sub_norm;
  const float* sinks = nullptr;  // (n_heads)
};

struct LayerWeights {
  AttentionWeights attention;
  Norm ffn_norm;
  Ffn ffn;  // the dense FFN, or the shared expert of an MoE layer (empty `up`: none)
  Matrix shared_gate;
  Matrix head, merge;  // MH-MoE
  const float* head_bias = nullptr;
  const float* merge_bias = nullptr;
  RouterWeightsView router;
  ExpertSource* experts = nullptr;  // MoE layers
};

/// One line of the memory account: what is held and how many bytes.
struct MemoryLine {
  const char* what;
  uint64_t bytes;
};

struct ModelOptions {
  bool map_weights = false;  // map uncompressed segments of a file instead of reading them
  bool verify = true;        // check every segment's checksum when it is first touched
};

class Model final {
 public:
  /// Reads metadata, validates it, and brings the weights in. `file` is taken over; `device`, `pool`
  /// and `logger` must outlive the model.
  static Result<Box<Model>> open(Box<MoeFile> file, const ModelOptions& options, Device& device,
                                 const Logger& logger, const Allocator& allocator);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const;
  Device& device() const;
  const Allocator& allocator() const;
  const Matrix& embedding() const;           // (vocab, d)
  const Matrix& position_embedding() const;  // (context, d) or empty
  const Norm& embedding_norm() const;        // kNone when there is none
  const Norm& final_norm() const;
  const Matrix& head() const;                // (vocab, d): the embedding itself when tied
  const float* head_bias() const;
  const LayerWeights& layer(int32_t index) const;
  const fbs::Tokenizer* tokenizer() const;   // null: ids only
  const MoeFile& file() const;               // for inspect

  uint64_t weight_bytes() const;             // resident, padding included
  /// Bytes of weights read for one token when k experts (the router's own number; threshold: max_k) are taken.
  uint64_t bytes_per_token() const;

 private:
  struct Impl;
  template <class T, class... Args>
  friend Result<Box<T>> make_box(const Allocator&, Args&&...);
  explicit Model(Box<Impl> impl);
  Box<Impl> impl_;
};

}  // namespace moe
