// SPDX-License-Identifier: MIT
// GGUF files of families with a state per layer that lack something, or say it in another way. The
// intact files are test data, whose logits are compared elsewhere.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "formats/import/failure.h"
#include "quant/half.h"
#include "src/convert/convert.h"
#include "src/convert/gguf/gguf_source.h"
#include "tests/convert/gguf_builder.h"
#include "tests/support/every_nth.h"

namespace moe {
namespace {

using test::GgufBuilder;

struct Content {
  std::vector<uint64_t> shape;
  std::vector<float> values;
  bool half = false;  // stored as f16
};

std::string stored(const Content& content) {
  if (!content.half) return test::as_bytes(content.values);
  std::vector<uint16_t> halves;
  for (const float v : content.values) halves.push_back(f32_to_f16(v));
  return test::as_bytes(halves);
}

/// A file of the test data, of which tests change keys and tensors.
class File {
 public:
  explicit File(const std::string& family)
      : checkpoint_("tests/data/families/gguf_" + family + "/model.gguf"),
        keys(checkpoint_.metadata()) {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      Content& content = tensors[name];
      content.shape.assign(tensor.shape.begin(), tensor.shape.end());
      content.values.resize(tensor.n_elements);
      checkpoint_.read(tensor, 0, content.values.size(), content.values.data());
    }
  }

  std::string arch() const { return keys.at("general.architecture").text(); }
  std::string key(const std::string& name) const { return arch() + "." + name; }

  std::string bytes() const {
    GgufBuilder b;
    for (const auto& [name, value] : keys.items()) {
      if (!name.starts_with("tokenizer.")) put(&b, name, value);
    }
    for (const auto& [name, content] : tensors) {
      b.tensor(name, content.half ? 1 : 0, content.shape, stored(content));
    }
    return b.file();
  }

 private:
  static void put(GgufBuilder* b, const std::string& name, const Json& value) {
    if (value.is_string()) return b->string(name, value.text());
    if (value.is_boolean()) return b->pair(name, 7, std::string(1, value.get<bool>() ? 1 : 0));
    if (value.is_number_integer()) return b->u32(name, value.get<uint32_t>());
    if (value.is_number()) return b->f32(name, value.get<float>());
    const bool flags = value.size() > 0 && value[0].is_boolean();
    const bool whole = flags || value.size() == 0 || value[0].is_number_integer();
    if (!whole) {
      std::vector<float> floats;
      for (size_t i = 0; i < value.size(); ++i) floats.push_back(value[i].get<float>());
      return b->numbers(name, 6, floats);
    }
    std::vector<uint8_t> bools;
    std::vector<uint32_t> numbers;
    for (size_t i = 0; i < value.size(); ++i) {
      if (flags) bools.push_back(value[i].get<bool>() ? 1 : 0);
      if (!flags) numbers.push_back(value[i].get<uint32_t>());
    }
    flags ? b->numbers(name, 7, bools) : b->numbers(name, 4, numbers);
  }

  Checkpoint checkpoint_;

 public:
  Json keys;
  std::map<std::string, Content> tensors;
};

constexpr const char* kFamilies[] = {
    "qwen3_5_moe_small", "qwen3_next_small",  "granitemoehybrid_small", "nemotron_h_moe_small",
    "falcon_h1_small",   "kimi_linear_small", "bailing_hybrid_small",   "minimax_01_small"};

bool has_kimi_rule(const std::string& family) {
  return family == "kimi_linear_small" || family == "bailing_hybrid_small";
}
// The others have a key for each of their sizes.
bool has_sizes(const std::string& family) { return family != "minimax_01_small"; }

class GgufState : public testing::Test {
 protected:
  Status convert_file(const File& file, ConvertReport* report = nullptr,
                      bool no_predictions = false) {
    folder_.write("m.gguf", file.bytes());
    ConvertReport own;
    sink_ = std::make_unique<MemorySink>();
    ConvertOptions options;
    options.weights = "f32";
    options.no_predictions = no_predictions;
    return convert_to_sink(folder_.file("m.gguf"), *sink_, options,
                           report == nullptr ? &own : report);
  }
  std::string said(const Status& status) const {
    std::string text = status.text();
    const size_t at = text.find(folder_.path());
    if (at != std::string::npos) text.erase(at, folder_.path().size() + 1);
    return text;
  }
  // The weights, without what describes them.
  std::string weights(const File& file, bool no_predictions = false) {
    const Status status = convert_file(file, nullptr, no_predictions);
    EXPECT_TRUE(status.ok()) << status.text();
    if (!status.ok()) return "";
    uint64_t end = 0;
    std::memcpy(&end, sink_->data() + 24, sizeof end);
    return std::string(reinterpret_cast<const char*>(sink_->data()) + 4096, end - 4096);
  }
  void expect_own_words(const Status& status) {
    for (const char* made :
         {".json", "linear_", "mamba_", "num_", "layer_types", "A_log", "in_proj", "conv1d.",
          "model.", "hidden_size", "block_type", "qk_", "mixer."}) {
      std::string text = said(status);
      const size_t own = text.find("ssm_conv1d.");
      if (own != std::string::npos) text.erase(own, 11);
      EXPECT_EQ(text.find(made), std::string::npos) << text;
    }
  }

  test::TempFolder folder_;
  std::unique_ptr<MemorySink> sink_;
};

TEST_F(GgufState, MissingSizesAreNamed) {
  for (const char* family : kFamilies) {
    const File file(family);
    int n = 0;
    for (const auto& [key, value] : file.keys.items()) {
      const bool size = key.starts_with(file.key("ssm.")) || key == file.key("kda.head_dim") ||
                        key == file.key("attention.key_length_mla") ||
                        key == file.key("attention.value_length_mla") ||
                        key == file.key("attention.kv_lora_rank");
      if (!size) continue;
      File changed(family);
      changed.keys.erase(key);
      const Status status = convert_file(changed);
      EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << family << ": " << key;
      EXPECT_TRUE(said(status).starts_with("m.gguf: key " + key + " is missing")) << said(status);
      ++n;
    }
    EXPECT_GE(n, has_sizes(family) ? 5 : 0) << family;
  }
}

// Any key of the architecture may be missing: if it is needed, the error is in the file's words.
TEST_F(GgufState, FilesWithoutAnyOneKeyConvertOrSayWhy) {
  for (const char* family : kFamilies) {
    const File file(family);
    for (const auto& [key, value] : file.keys.items()) {
      if (!key.starts_with(file.key(""))) continue;
      File changed(family);
      changed.keys.erase(key);
      const Status status = convert_file(changed);
      if (status.ok()) continue;
      EXPECT_NE(status.code(), MOE_ERR_INTERNAL) << key << ": " << status.text();
      const bool named = said(status).find(file.arch() + ".") != std::string::npos;
      EXPECT_TRUE(named || said(status).starts_with("tensor blk.")) << said(status);
      expect_own_words(status);
    }
  }
}

TEST_F(GgufState, WrongSizesAreNamed) {
  for (const char* family : kFamilies) {
    const File file(family);
    for (const auto& [key, value] : file.keys.items()) {
      if (!key.starts_with(file.key("ssm."))) continue;
      for (const Json& bad : {Json(0), Json("many"), Json(1u << 30), Json(-1.5)}) {
        File changed(family);
        changed.keys[key] = bad;
        const Status status = convert_file(changed);
        EXPECT_FALSE(status.ok()) << family << ": " << key;
        EXPECT_NE(said(status).find(key), std::string::npos) << said(status);
        expect_own_words(status);
      }
    }
    if (has_kimi_rule(family) || !has_sizes(family)) continue;
    File odd(family);
    odd.keys[odd.key("ssm.inner_size")] = 25;
    const Status status = convert_file(odd);
    EXPECT_EQ(status.code(), MOE_ERR_SHAPE) << family;
    EXPECT_NE(said(status).find("ssm.inner_size is 25, not a multiple of ssm.time_step_rank"),
              std::string::npos)
        << said(status);
  }
}

TEST_F(GgufState, MissingAndMisshapenTensorsAreNamed) {
  test::EveryNth turn(4);
  for (const char* family : kFamilies) {
    const File file(family);
    for (const auto& [name, content] : file.tensors) {
      if (name == "output.weight" || name.ends_with("ssm_norm.weight") ||
          name == "blk.0.ssm_conv1d.bias" || name == "blk.0.ffn_gate.weight") {
        continue;  // without them the file describes another model
      }
      if (name.find(".nextn.") != std::string::npos) continue;
      if (name.ends_with("attn_k_b.weight") || name.ends_with("attn_v_b.weight")) {
        continue;  // without them older files' attn_kv_b is looked for
      }
      if (!turn.take()) continue;
      File without(family);
      without.tensors.erase(name);
      const Status missing = convert_file(without);
      EXPECT_FALSE(missing.ok()) << family << ": " << name;
      EXPECT_NE(said(missing).find(name), std::string::npos) << said(missing);
      EXPECT_NE(said(missing).find(" is missing"), std::string::npos) << said(missing);
      expect_own_words(missing);
      const bool vocabulary = name == "token_embd.weight";  // then the head does not fit
      if (vocabulary && !file.tensors.contains("output.weight")) continue;
      File wide(family);
      Content& more = wide.tensors[name];
      more.shape[0] *= 2;
      more.values.resize(more.values.size() * 2, -0.5f);
      const Status status = convert_file(wide);
      EXPECT_FALSE(status.ok()) << family << ": " << name;
      EXPECT_NE(said(status).find(vocabulary ? "output.weight" : name), std::string::npos)
          << said(status);
      expect_own_words(status);
    }
  }
}

// The file has -e^A_log, which is below 0.
TEST_F(GgufState, DecaysHaveToBeNegative) {
  for (const char* family : kFamilies) {
    if (!File(family).tensors.contains("blk.0.ssm_a")) continue;
    if (std::string(family) == "bailing_hybrid_small") continue;
    for (const float bad : {0.0f, 0.25f, -INFINITY, NAN}) {
      File file(family);
      file.tensors.at("blk.0.ssm_a").values[0] = bad;
      const Status status = convert_file(file);
      EXPECT_EQ(status.code(), MOE_ERR_RANGE) << family;
      EXPECT_NE(said(status).find("tensor blk.0.ssm_a: expected finite numbers below 0, found"),
                std::string::npos)
          << said(status);
    }
  }
}

// A file of Ling 3 holds e^A_log, which is above 0.
TEST_F(GgufState, DecaysOfLing3HaveToBePositive) {
  for (const float bad : {0.0f, -0.25f, INFINITY, NAN}) {
    File file("bailing_hybrid_small");
    file.tensors.at("blk.0.ssm_a").values[0] = bad;
    const Status status = convert_file(file);
    EXPECT_EQ(status.code(), MOE_ERR_RANGE);
    EXPECT_NE(said(status).find("tensor blk.0.ssm_a: expected finite numbers above 0, found"),
              std::string::npos)
        << said(status);
  }
}

TEST_F(GgufState, LimitsOfLing3AreRefused) {
  File file("bailing_hybrid_small");
  const std::string without = weights(file);
  file.keys[file.key("swiglu_clamp_shexp")] = {0.0, 7.0, 0.0};
  const Status status = convert_file(file);
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(said(status),
            "m.gguf: key bailingmoe3.swiglu_clamp_shexp[1]: 7.0 is not supported; only 0 is; "
            "--ignore-key bailingmoe3.swiglu_clamp_shexp converts the model without the limits, as "
            "transformers runs it");
  file.keys.erase(file.key("swiglu_clamp_shexp"));
  file.keys.erase(file.key("swiglu_clamp_exp"));
  EXPECT_TRUE(weights(file) == without);
}

// The gates of a rule without a bound decay without one, too.
TEST_F(GgufState, DecaysOfLing3MayBeWithoutABound) {
  File file("bailing_hybrid_small");
  const std::string key = file.key("kda.gate_lower_bound");
  file.keys[key] = 1.0;
  const Status status = convert_file(file);
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(said(status).find("key " + key), std::string::npos) << said(status);
  file.keys[file.key("kda.safe_gate")] = false;
  EXPECT_TRUE(convert_file(file).ok()) << convert_file(file).text();
}

TEST_F(GgufState, MiniMaxHasAFactorAndAttentionInEveryEighthLayer) {
  File file("minimax_01_small");
  const std::string key = file.key("residual_scale");
  for (const double bad : {0.0, -1.0, 1e6}) {
    file.keys[key] = bad;
    const Status status = convert_file(file);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(said(status).find("key " + key), std::string::npos) << said(status);
    expect_own_words(status);
  }
  file.keys.erase(key);
  EXPECT_TRUE(said(convert_file(file)).starts_with("m.gguf: key " + key + " is missing"))
      << said(convert_file(file));
  // Without a list both layers of this file have a rule.
  File listed("minimax_01_small");
  listed.keys.erase(listed.key("attention.recurrent_layers"));
  const Status status = convert_file(listed);
  EXPECT_EQ(status.code(), MOE_ERR_NOT_FOUND) << status.text();
  EXPECT_NE(said(status).find("blk.1.attn_qkv.weight"), std::string::npos) << said(status);
}

// "attention.recurrent_layers" is newer than "full_attention_interval", and decides.
TEST_F(GgufState, LayersWithARuleAreListedOrFollowAnInterval) {
  for (const char* family : {"qwen3_5_moe_small", "qwen3_next_small"}) {
    File file(family);
    const std::string listed = weights(file);
    file.keys.erase(file.key("attention.recurrent_layers"));
    file.keys[file.key("full_attention_interval")] = 2;
    EXPECT_TRUE(weights(file) == listed);
    file.keys[file.key("attention.recurrent_layers")] = {true, false, false};
    const Status status = convert_file(file);
    EXPECT_EQ(status.code(), MOE_ERR_SHAPE);
    EXPECT_NE(said(status).find("attention.recurrent_layers has 3 entries, but block_count is 2"),
              std::string::npos)
        << said(status);
  }
}

// Older files of Qwen3-Next have q, k, v and z of each key head together, as the checkpoint.
TEST_F(GgufState, OlderFilesOfQwen3NextHoldTheGroupedMatrix) {
  File file("qwen3_next_small");
  const std::string split = weights(file);
  const uint64_t keys = 2, d_k = 4, heads = 3, d_v = 6, cols = 16;
  const Content qkv = file.tensors.at("blk.0.attn_qkv.weight");
  const Content z = file.tensors.at("blk.0.attn_gate.weight");
  Content all{{keys * (2 * d_k + 2 * heads * d_v), cols}, {}};
  const auto add = [&](const Content& from, uint64_t first, uint64_t n) {
    const auto begin = from.values.begin() + static_cast<ptrdiff_t>(first * cols);
    all.values.insert(all.values.end(), begin, begin + static_cast<ptrdiff_t>(n * cols));
  };
  for (uint64_t k = 0; k < keys; ++k) {
    add(qkv, k * d_k, d_k);
    add(qkv, (keys + k) * d_k, d_k);
    add(qkv, 2 * keys * d_k + k * heads * d_v, heads * d_v);
    add(z, k * heads * d_v, heads * d_v);
  }
  file.tensors.erase("blk.0.attn_qkv.weight");
  file.tensors.erase("blk.0.attn_gate.weight");
  file.tensors["blk.0.ssm_in.weight"] = all;
  EXPECT_TRUE(weights(file) == split);
}

// A file may hold gates and ups of all experts in one tensor.
TEST_F(GgufState, GatesAndUpsOfExpertsMayBeTogether) {
  File file("qwen3_5_moe_small");
  const std::string split = weights(file);
  for (const std::string block : {"blk.0.", "blk.1."}) {
    const Content gate = file.tensors.at(block + "ffn_gate_exps.weight");
    const Content up = file.tensors.at(block + "ffn_up_exps.weight");
    Content both{{gate.shape[0], 2 * gate.shape[1], gate.shape[2]}, {}};
    const auto size = static_cast<ptrdiff_t>(gate.shape[1] * gate.shape[2]);
    for (ptrdiff_t e = 0; e < static_cast<ptrdiff_t>(gate.shape[0]); ++e) {
      for (const Content* part : {&gate, &up}) {
        const auto begin = part->values.begin() + e * size;
        both.values.insert(both.values.end(), begin, begin + size);
      }
    }
    file.tensors.erase(block + "ffn_gate_exps.weight");
    file.tensors.erase(block + "ffn_up_exps.weight");
    file.tensors[block + "ffn_gate_up_exps.weight"] = both;
  }
  EXPECT_TRUE(weights(file) == split);
}

// The file with a layer that predicts further tokens, which has the tensors of block `like`;
// returns the prefix of its names.
std::string add_prediction(File* file, int like) {
  const auto n = file->keys.at(file->key("block_count")).get<uint32_t>();
  const std::string last = "blk." + std::to_string(n) + ".";
  file->keys[file->key("block_count")] = n + 1;
  file->keys[file->key("nextn_predict_layers")] = 1;
  for (const char* key :
       {"attention.recurrent_layers", "attention.head_count_kv", "feed_forward_length"}) {
    if (!file->keys.contains(file->key(key))) continue;
    Json& list = file->keys[file->key(key)];
    if (list.is_array()) list.push_back(Json(list[static_cast<size_t>(like)]));
  }
  const std::string block = "blk." + std::to_string(like) + ".";
  const std::map<std::string, Content> others = file->tensors;
  for (const auto& [name, content] : others) {
    if (name.starts_with(block)) file->tensors[last + name.substr(block.size())] = content;
  }
  file->tensors[last + "nextn.eh_proj.weight"] = {{16, 32}, std::vector<float>(512, 1.0f)};
  for (const char* norm : {"enorm", "hnorm", "shared_head_norm"}) {
    file->tensors[last + "nextn." + norm + ".weight"] = {{16}, std::vector<float>(16, 1.0f)};
  }
  return last + "nextn.";
}

TEST_F(GgufState, ALayerThatPredictsFurtherTokensIsKept) {
  for (const char* family : {"qwen3_5_moe_small", "qwen3_next_small"}) {
    File file(family);
    const std::string without = weights(file);
    const std::string next = add_prediction(&file, 1);
    ConvertReport report;
    const Status status = convert_file(file, &report);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(report.n_skipped_layers, 0) << family;
    EXPECT_GT(weights(file).size(), without.size()) << family;
    EXPECT_TRUE(weights(file, true) == without) << family;
    file.tensors.erase(next + "hnorm.weight");
    EXPECT_TRUE(said(convert_file(file)).starts_with("tensor " + next + "hnorm.weight is missing"))
        << said(convert_file(file));
  }
}

// Its own embedding and head are those of the model, which a file may store in another type.
TEST_F(GgufState, APredictionWithAnotherEmbeddingIsLeftOut) {
  File file("qwen3_5_moe_small");
  const std::string without = weights(file);
  const std::string next = add_prediction(&file, 1);
  const std::string with = weights(file);
  Content& copy = file.tensors[next + "embed_tokens.weight"] = file.tensors.at("token_embd.weight");
  EXPECT_TRUE(weights(file) == with);
  copy.half = true;
  copy.values[5] *= 1.0001f;
  EXPECT_TRUE(weights(file) == with);
  for (const bool half : {true, false}) {
    copy.half = half;
    std::reverse(copy.values.begin(), copy.values.end());
    ConvertReport report;
    const Status status = convert_file(file, &report);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(report.n_skipped_layers, 1);
    const std::string said = report.warnings.empty() ? "" : report.warnings.back();
    EXPECT_NE(said.find("an embedding or a head of its own"), std::string::npos) << said;
    EXPECT_TRUE(weights(file) == without);
    std::reverse(copy.values.begin(), copy.values.end());
  }
}

TEST_F(GgufState, PredictionLayersOfNemotronAreLeftOut) {
  File file("nemotron_h_moe_small");
  const std::string without = weights(file);
  add_prediction(&file, 0);
  ConvertReport report;
  const Status status = convert_file(file, &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(report.n_skipped_layers, 1);
  EXPECT_TRUE(weights(file) == without);
}

class GgufGemma4 : public GgufState {
 protected:
  GgufGemma4() : file_("gemma4_small") {}
  void refused(moe_status code, const std::string& text) {
    const Status status = convert_file(file_);
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(said(status).find(text), std::string::npos) << said(status);
    expect_own_words(status);
    file_ = File("gemma4_small");
  }
  void refused(const char* key, const Json& value) {
    const std::string name = file_.key(key);
    file_.keys[name] = value;
    refused(MOE_ERR_UNSUPPORTED, "key " + name + " with value");
  }
  std::vector<float>& factors() { return file_.tensors.at("rope_freqs.weight").values; }

  File file_;
};

TEST_F(GgufGemma4, AnyOneKeyMayBeMissingOrIsNamed) {
  int n_missing = 0;
  for (const auto& [key, value] : file_.keys.items()) {
    if (!key.starts_with("gemma4.")) continue;
    File changed("gemma4_small");
    changed.keys.erase(key);
    const Status status = convert_file(changed);
    if (status.ok()) continue;
    ++n_missing;
    EXPECT_NE(status.code(), MOE_ERR_INTERNAL) << key << ": " << status.text();
    const bool named = said(status).find("gemma4.") != std::string::npos;
    EXPECT_TRUE(named || said(status).starts_with("tensor ")) << said(status);
    expect_own_words(status);
  }
  EXPECT_GE(n_missing, 12);
}

TEST_F(GgufGemma4, MissingAndMisshapenTensorsAreNamed) {
  test::EveryNth turn(4);
  for (const auto& [name, content] : file_.tensors) {
    if (name == "rope_freqs.weight" || name == "token_embd.weight") continue;
    // By these two it is known what other layers call their norms.
    if (name == "blk.0.ffn_norm.weight" || name == "blk.0.post_attention_norm.weight") continue;
    if (!turn.take()) continue;
    // Whether keys are values, and whether there are experts, is said by tensors alone.
    const bool says = name == "blk.1.attn_v.weight" || name.ends_with("ffn_gate_inp.weight");
    File without("gemma4_small");
    without.tensors.erase(name);
    const Status missing = convert_file(without);
    EXPECT_EQ(missing.ok(), name == "blk.1.attn_v.weight") << name << ": " << missing.text();
    if (!says) {
      EXPECT_NE(said(missing).find(name), std::string::npos) << said(missing);
    }
    File wide("gemma4_small");
    Content& more = wide.tensors[name];
    more.shape[0] *= 2;
    more.values.resize(more.values.size() * 2, 0.5f);
    const Status status = convert_file(wide);
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_NE(said(status).find(name), std::string::npos) << said(status);
    expect_own_words(status);
  }
}

TEST_F(GgufGemma4, WhatLlamaCppDoesNotWriteIsRefused) {
  refused("attention.value_length", 6);
  refused("attention.value_length_swa", 6);
  refused("rope.dimension_count", 4);
  refused("rope.dimension_count_swa", 2);
  refused("attention.head_count_kv", Json({1, 1, 0, 1}));
  refused("attention.head_count_kv", Json({1, 1, 1, 3}));
  refused("attention.sliding_window_pattern", Json({true, false, true}));
  refused("feed_forward_length", Json({12, 13, 24, 24}));
  refused("feed_forward_length", Json({12, 12, 24, 36}));
  refused("expert_weights_scale", 2.5);
  file_.keys["gemma4.rope.scaling.type"] = "yarn";
  refused(MOE_ERR_UNSUPPORTED, "gemma4.rope.scaling.type");
  file_.keys["gemma4.attention.shared_kv_layers"] = 4;
  refused(MOE_ERR_FORMAT, "gemma4.attention.shared_kv_layers");
  factors()[0] = 2;
  refused(MOE_ERR_UNSUPPORTED, "tensor rope_freqs.weight: expected factors of 1, then of 1e30");
  factors()[3] = 1;
  refused(MOE_ERR_UNSUPPORTED, "tensor rope_freqs.weight: expected factors of 1, then of 1e30");
  factors().resize(6, 1);
  file_.tensors.at("rope_freqs.weight").shape = {6};
  refused(MOE_ERR_SHAPE, "tensor rope_freqs.weight: expected (4), found (6)");
}

// Nemotron 3 Super's, and those of a pruned model.
TEST_F(GgufState, ExpertsThatHaveNoCounterpartAreRefused) {
  for (const auto& [key, value] : {std::pair<const char*, Json>{"moe_latent_size", 8},
                                   {"expert_feed_forward_length", Json({0, 8, 0})},
                                   {"expert_used_count", Json({0, 2, 0})}}) {
    File file("nemotron_h_moe_small");
    file.keys[file.key(key)] = value;
    const Status status = convert_file(file);
    EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED) << key;
    EXPECT_NE(said(status).find("key " + file.key(key) + " with value"), std::string::npos)
        << said(status);
  }
}

TEST_F(GgufState, ListsHaveOneEntryForEachLayer) {
  for (const char* family :
       {"granitemoehybrid_small", "nemotron_h_moe_small", "kimi_linear_small"}) {
    File file(family);
    const std::string key = file.key("attention.head_count_kv");
    file.keys[key] = {0, 1, 0, 1, 0};
    const Status status = convert_file(file);
    EXPECT_EQ(status.code(), MOE_ERR_SHAPE) << family;
    EXPECT_NE(said(status).find("key " + key + " has 5 entries, but block_count is"),
              std::string::npos)
        << said(status);
    expect_own_words(status);
  }
}

// A Qwen3.5 of one layer, whose matrices of the rule are Q4_0 with a scale per row.
std::string quantised_rule() {
  GgufBuilder b;
  b.string("general.architecture", "qwen35");
  const std::pair<const char*, uint32_t> keys[] = {
      {"context_length", 64},       {"embedding_length", 32},    {"block_count", 1},
      {"feed_forward_length", 32},  {"attention.head_count", 2}, {"attention.head_count_kv", 1},
      {"attention.key_length", 16}, {"rope.dimension_count", 4}, {"ssm.conv_kernel", 4},
      {"ssm.state_size", 4},        {"ssm.group_count", 2},      {"ssm.time_step_rank", 6},
      {"ssm.inner_size", 192}};
  for (const auto& [key, value] : keys) b.u32(std::string("qwen35.") + key, value);
  b.f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
  b.f32("qwen35.rope.freq_base", 1e4f);
  b.f32_tensor("token_embd.weight", {16, 32});
  b.f32_tensor("output_norm.weight", {32});
  b.f32_tensor("blk.0.attn_norm.weight", {32});
  b.f32_tensor("blk.0.post_attention_norm.weight", {32});
  b.f32_tensor("blk.0.ssm_a", {6}, -0.5f);
  b.f32_tensor("blk.0.ssm_dt.bias", {6});
  b.f32_tensor("blk.0.ssm_norm.weight", {32});
  b.f32_tensor("blk.0.ssm_conv1d.weight", {208, 4});
  const auto blocks = [&](const std::string& name, uint64_t rows, uint64_t per_row) {
    std::string bytes;
    for (uint64_t i = 0; i < rows * per_row; ++i) {
      bytes += GgufBuilder::raw(f32_to_f16(static_cast<float>(i + 1) / 64));
      for (uint64_t j = 0; j < 16; ++j) bytes += static_cast<char>(i * 7 + j * 29);
    }
    b.tensor("blk.0." + name + ".weight", 2, {rows, 32 * per_row}, bytes);
  };
  blocks("attn_qkv", 208, 1);
  blocks("attn_gate", 192, 1);
  blocks("ssm_alpha", 6, 1);
  blocks("ssm_beta", 6, 1);
  blocks("ssm_out", 32, 6);
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) blocks(name, 32, 1);
  return b.file();
}

// Rows in another order are the same codes; columns are not, as their blocks would be torn apart.
TEST_F(GgufState, CodesOfReorderedHeadsAreKept) {
  folder_.write("m.gguf", quantised_rule());
  std::map<std::string, MatrixReport> matrices;
  ConvertOptions options;
  options.on_matrix = [&](const MatrixReport& m) { matrices[m.name] = m; };
  ConvertReport report;
  MemorySink sink;
  const Status status = convert_to_sink(folder_.file("m.gguf"), sink, options, &report);
  ASSERT_TRUE(status.ok()) << status.text();
  for (const char* name : {"q", "k", "v", "z", "b", "a"}) {
    const MatrixReport& m = matrices.at(std::string("layers.0.gated_delta.") + name);
    EXPECT_EQ(m.format, FormatId::kInt4) << name;
    EXPECT_TRUE(m.lossless) << name;
  }
  EXPECT_EQ(matrices.at("layers.0.gated_delta.out").format, FormatId::kInt8Group);
}

// llama.cpp applies no factor if it is 0 or missing.
TEST_F(GgufState, AFactorOfExpertsThatIsZero) {
  const auto converted = [&](const File& file) {
    const Status status = convert_file(file);
    EXPECT_TRUE(status.ok()) << status.text();
    return std::string(reinterpret_cast<const char*>(sink_->data()), sink_->size());
  };
  for (const char* family : {"nemotron_h_moe_small", "kimi_linear_small"}) {
    File file(family);
    const std::string key = file.key("expert_weights_scale");
    file.keys[key] = 1.0;
    const std::string one = converted(file);
    file.keys[key] = 2.0;
    EXPECT_NE(converted(file), one) << family;
    file.keys[key] = 0.0;
    EXPECT_EQ(converted(file), one) << family;
    file.keys.erase(key);
    EXPECT_EQ(converted(file), one) << family;
  }
}

}  // namespace
}  // namespace moe
