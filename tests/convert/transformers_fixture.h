// SPDX-License-Identifier: MIT
#pragma once
// Reads a config.json of a `transformers` checkpoint without tensors.

#include <gtest/gtest.h>

#include "formats/import/failure.h"
#include "src/convert/convert.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {

inline const char* const kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 24, "vocab_size": 40,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20,
  "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2, "use_cache": true})";

class TransformersTest : public testing::Test {
 protected:
  TransformersTest() {
    folder_.write("model.safetensors", test::safetensors_text(test::RawTensors{}));
  }
  Imported read(const std::string& config) {
    folder_.write("config.json", config);
    return import_checkpoint(Checkpoint(folder_.path()));
  }
  Imported read_patched(const char* patch, const char* base = kLlama) {
    return read(test::patched(patch, base));
  }
  std::string error(const char* patch, moe_status code, const char* base = kLlama) {
    const Status status = guarded([&] { read_patched(patch, base); });
    EXPECT_EQ(status.code(), code) << patch << ": " << status.text();
    return status.text();
  }
  /// The model file of `original` with its tensors renamed by rename(name).
  template <class Rename>
  std::string converted(const Checkpoint& original, const Rename& rename) {
    test::RawTensors tensors;
    for (const auto& [name, tensor] : original.tensors()) {
      std::vector<float> values(tensor.n_elements);
      original.read(tensor, 0, values.size(), values.data());
      tensors[rename(name)] = test::f32_tensor(tensor.shape, values);
    }
    folder_.write("config.json", original.document("config.json").dump());
    folder_.write("model.safetensors", test::safetensors_text(tensors));
    ConvertReport report;
    const Status status = convert(folder_.path(), folder_.file("m.moe"), {}, &report);
    EXPECT_TRUE(status.ok()) << status.text();
    return status.ok() ? folder_.text("m.moe") : "";
  }
  test::TempFolder folder_;
};

}  // namespace moe
