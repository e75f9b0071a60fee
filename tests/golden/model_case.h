// SPDX-License-Identifier: MIT
#pragma once
// Cases that are made into a model in memory, which a session runs.

#include "formats/moe/writer.h"
#include "src/model/config.h"
#include "tests/golden/golden.h"

namespace moe::golden {

void check(const Status& status);

/// A configuration, and its tensors under the names of the research layout.
struct ModelCase {
  ModelConfig config;
  std::map<std::string, Tensor> tensors;
  std::vector<int32_t> cosine_widths;
  int32_t heads = 1;
  bool pre = false;
  float tau = 1;

  void put(const std::string& name, const Json& owner, const char* key) {
    if (owner.contains(key) && !owner.at(key).is_null()) tensors[name] = tensor(owner.at(key));
  }
  void put_linear(const std::string& name, const Json& owner, const char* w, const char* b) {
    put(name + ".weight", owner, w);
    put(name + ".bias", owner, b);
  }
  void put_norm(const std::string& name, const Json& norm) {
    put_linear(name, norm, "weight", "bias");
  }
};

/// Starts a model without positions, final norm and head, with the parameters of the case (`pre`
/// and so on).
ModelCase begin(const Case& c, int32_t n_vocab, int32_t d);

Activation activation_of(const std::string& name);

// Add parts of a layer with the prefix `layer`, for example "layers.0.".
void add_network(const std::string& name, const Json& f, ModelCase& m, FfnConfig* ffn);
void add_experts(const std::string& layer, const Json& experts, ModelCase& m, FfnConfig* ffn);
/// Adds a dense network, or a layer of experts.
void add_ffn(const std::string& layer, const Json& f, ModelCase& m, FfnConfig* ffn);
/// Adds q, k, v and o with their biases under the prefix `name`, for example "layers.0.attention.".
void add_projections(const std::string& name, const Json& attention, ModelCase& m);

std::string next_layer(const ModelCase& m);
void add_layer(const LayerConfig& layer, int32_t cosine_width, ModelCase& m);
/// Adds a block that changes nothing, which makes the model an encoder.
void add_idle_block(ModelCase& m);

/// Positions 0..n-1 of fairseq's sinusoidal table: the sines of all frequencies, then the cosines.
Tensor sinusoids(int32_t n, int32_t d);
inline constexpr int32_t kSinusoids = 64;  // more positions than a case has
/// The first `d` columns of the rows from `first` on.
Tensor from_row(const Tensor& t, int32_t first, int32_t d);

void write_model(const ModelCase& m, MemorySink* sink);

}  // namespace moe::golden
