// SPDX-License-Identifier: MIT
#include "formats/import/gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/convert.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/importer.h"
#include "tests/convert/gguf_builder.h"

namespace moe {
namespace {

using test::GgufBuilder;

class GgufTest : public testing::Test {
 protected:
  std::string path() const { return folder_.file("m.gguf"); }
  GgufHeader header(const std::string& bytes) {
    folder_.write("m.gguf", bytes);
    return read_gguf_header(InputFile(path()), 0);
  }
  std::string header_error(const std::string& bytes, moe_status code) {
    const Status status = guarded([&] { header(bytes); });
    EXPECT_EQ(status.code(), code) << status.text();
    return status.text();
  }
  std::vector<float> floats(uint32_t type, uint64_t n, const std::string& bytes) {
    GgufBuilder b;
    b.tensor("t", type, {n}, bytes);
    folder_.write("m.gguf", b.file());
    const Checkpoint checkpoint(path());
    std::vector<float> out(n);
    checkpoint.read(*checkpoint.find("t"), 0, n, out.data());
    return out;
  }
  // A dense Llama of one layer, which tests modify.
  static GgufBuilder llama() {
    GgufBuilder b;
    b.string("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"context_length", 64},
                                     {"embedding_length", 8},
                                     {"block_count", 1},
                                     {"feed_forward_length", 12},
                                     {"attention.head_count", 2},
                                     {"attention.head_count_kv", 1},
                                     {"rope.dimension_count", 4}}) {
      b.u32(std::string("llama.") + key, static_cast<uint32_t>(value));
    }
    b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    b.f32("llama.rope.freq_base", 1e4f);
    b.f32_tensor("token_embd.weight", {16, 8});
    b.f32_tensor("output_norm.weight", {8});
    for (const char* name : {"attn_norm", "ffn_norm"}) {
      b.f32_tensor(std::string("blk.0.") + name + ".weight", {8});
    }
    for (const char* name : {"attn_q", "attn_output"}) {
      b.f32_tensor(std::string("blk.0.") + name + ".weight", {8, 8});
    }
    for (const char* name : {"attn_k", "attn_v"}) {
      b.f32_tensor(std::string("blk.0.") + name + ".weight", {4, 8});
    }
    for (const char* name : {"ffn_gate", "ffn_up"}) {
      b.f32_tensor(std::string("blk.0.") + name + ".weight", {12, 8});
    }
    b.f32_tensor("blk.0.ffn_down.weight", {8, 12});
    return b;
  }
  Status convert_file(const std::string& bytes) {
    folder_.write("m.gguf", bytes);
    ConvertReport report;
    return convert(path(), folder_.file("m.moe"), {}, &report);
  }

  test::TempFolder folder_;
};

TEST_F(GgufTest, ReadsPairsAndTensors) {
  GgufBuilder b;
  b.u32("a.n", 7);
  b.strings("a.list", {"x", "yz"});
  b.pair("a.flag", 7, std::string(1, '\1'));
  b.f32_tensor("t", {2, 3});
  b.tensor("u", 1, {4}, std::string(8, '\0'));
  const GgufHeader h = header(b.file());
  EXPECT_EQ(h.metadata.at("a.n"), 7);
  EXPECT_EQ(h.metadata.at("a.list")[1], "yz");
  EXPECT_EQ(h.metadata.at("a.flag"), true);
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(h.tensors[1].type, SourceType::kF16);
  EXPECT_EQ(h.tensors[1].offset - h.tensors[0].offset, 32u);
}

TEST(GgufNames, OfNormsDependOnTheBlock) {
  EXPECT_EQ(gguf_tensor_name("blk.3.ffn_norm.weight", "llama"),
            "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(gguf_tensor_name("blk.3.ffn_norm.weight", "gemma2"),
            "model.layers.3.pre_feedforward_layernorm.weight");
  EXPECT_EQ(gguf_tensor_name("blk.3.post_attention_norm.weight", "gemma2"),
            "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(gguf_tensor_name("blk.3.nextn.eh_proj.weight", "glm4moe"),
            "model.layers.3.eh_proj.weight");
}

// The checkpoint's tensors under llama.cpp's names give the same weights.
TEST_F(GgufTest, Olmo2) {
  const std::string original = "tests/data/families/olmo2";
  GgufBuilder b;
  b.string("general.architecture", "olmo2");
  for (const auto& [key, value] : {std::pair{"context_length", 128},
                                   {"embedding_length", 32},
                                   {"block_count", 2},
                                   {"feed_forward_length", 40},
                                   {"attention.head_count", 4},
                                   {"attention.head_count_kv", 2}}) {
    b.u32(std::string("olmo2.") + key, static_cast<uint32_t>(value));
  }
  b.f32("olmo2.attention.layer_norm_rms_epsilon", 1e-5f);
  b.f32("olmo2.rope.freq_base", 1e4f);
  const Checkpoint checkpoint(original);
  const auto add = [&](const std::string& name, const std::string& gguf) {
    const SourceTensor* tensor = checkpoint.find(name + ".weight");
    ASSERT_NE(tensor, nullptr) << name;
    std::vector<float> values(tensor->n_elements);
    checkpoint.read(*tensor, 0, values.size(), values.data());
    b.tensor(gguf + ".weight", 0, {tensor->shape.begin(), tensor->shape.end()},
             test::as_bytes(values));
  };
  add("model.embed_tokens", "token_embd");
  add("lm_head", "output");
  add("model.norm", "output_norm");
  for (const std::string l : {"0", "1"}) {
    for (const auto& [name, gguf] : {std::pair{"self_attn.q_proj", "attn_q"},
                                     {"self_attn.k_proj", "attn_k"},
                                     {"self_attn.v_proj", "attn_v"},
                                     {"self_attn.o_proj", "attn_output"},
                                     {"self_attn.q_norm", "attn_q_norm"},
                                     {"self_attn.k_norm", "attn_k_norm"},
                                     {"post_attention_layernorm", "post_attention_norm"},
                                     {"post_feedforward_layernorm", "post_ffw_norm"},
                                     {"mlp.gate_proj", "ffn_gate"},
                                     {"mlp.up_proj", "ffn_up"},
                                     {"mlp.down_proj", "ffn_down"}}) {
      add("model.layers." + l + "." + name, "blk." + l + "." + gguf);
    }
  }
  folder_.write("m.gguf", b.file());
  const auto weights = [](const std::string& source) {
    MemorySink sink;
    ConvertOptions options;
    options.weights = "f32";
    ConvertReport report;
    const Status status = convert_to_sink(source, sink, options, &report);
    EXPECT_TRUE(status.ok()) << source << ": " << status.text();
    uint64_t end = 0;  // where the metadata begins, after the last segment
    std::memcpy(&end, sink.data() + 24, sizeof end);
    return std::string(reinterpret_cast<const char*>(sink.data()) + 4096, end - 4096);
  };
  EXPECT_TRUE(weights(path()) == weights(original));
}

TEST_F(GgufTest, RefusesWhatIsWrong) {
  GgufBuilder b;
  b.u32("a.n", 7);
  b.f32_tensor("t", {2, 3});
  const std::string good = b.file();
  header(good);
  EXPECT_NE(header_error("GGML" + good.substr(4), MOE_ERR_FORMAT).find("not a GGUF file"),
            std::string::npos);
  EXPECT_NE(header_error(b.file(1), MOE_ERR_UNSUPPORTED).find("GGUF version 1"), std::string::npos);
  for (size_t n = 0; n < good.size() - 8; ++n) header_error(good.substr(0, n), MOE_ERR_FORMAT);
  // Lengths beyond the end of the file.
  std::string huge = good;
  huge.replace(24, 8, std::string(8, '\x7F'));
  header_error(huge, MOE_ERR_FORMAT);
  GgufBuilder twice = b;
  twice.u32("a.n", 8);
  EXPECT_NE(header_error(twice.file(), MOE_ERR_FORMAT).find("a.n is given twice"),
            std::string::npos);
  GgufBuilder overlap = b;
  overlap.shift(static_cast<uint64_t>(-32));
  overlap.f32_tensor("u", {2});
  EXPECT_NE(header_error(overlap.file(), MOE_ERR_FORMAT).find("on another tensor"),
            std::string::npos);
  GgufBuilder k;
  k.tensor("blk.0.attn_q.weight", 40, {256}, std::string(144, '\0'));
  const std::string refused = header_error(k.file(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(refused.find("tensor blk.0.attn_q.weight has type NVFP4, which cannot be read; "),
            std::string::npos);
  EXPECT_NE(
      refused.find("IQ4_NL, IQ4_XS, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M, I2_S "
                   "can. Take another"),
      std::string::npos);
  GgufBuilder other_type;  // the data has the size of Q8_0
  other_type.tensor("t", 2, {64}, std::string(68, '\0'));
  other_type.f32_tensor("u", {2});
  EXPECT_NE(header_error(other_type.file(), MOE_ERR_FORMAT)
                .find("tensor t: Q4_0 takes 36 bytes, the file has 96 for it"),
            std::string::npos);
  GgufBuilder last;  // the same in the last tensor
  last.tensor("t", 2, {64}, std::string(68, '\0'));
  EXPECT_NE(header_error(last.file(), MOE_ERR_FORMAT)
                .find("tensor t: Q4_0 takes 36 bytes, the file has 96 for it"),
            std::string::npos);
  GgufBuilder plain;  // the data has the size of F32
  plain.tensor("t", 1, {64}, std::string(256, '\0'));
  plain.f32_tensor("u", {2});
  EXPECT_NE(header_error(plain.file(), MOE_ERR_FORMAT)
                .find("tensor t: F16 takes 128 bytes, the file has 256 for it"),
            std::string::npos);
  GgufBuilder rows;
  rows.tensor("t", 8, {2, 48}, std::string(102, '\0'));
  EXPECT_NE(header_error(rows.file(), MOE_ERR_FORMAT).find("blocks of 32"), std::string::npos);
}

TEST_F(GgufTest, BlocksAreNumbers) {
  const std::string half("\x00\x38", 2);  // 0.5
  std::string q8 = half;
  for (int i = 0; i < 32; ++i) q8 += static_cast<char>(i - 16);
  const std::vector<float> q8_0 = floats(8, 32, q8);
  EXPECT_EQ(q8_0[0], -8.0f);
  EXPECT_EQ(q8_0[31], 7.5f);

  // 2 bits: byte m of a half holds elements m, m + 32, m + 64, m + 96.
  std::string tq2(64, static_cast<char>(0x55));  // all zeros
  tq2[3] = static_cast<char>(0b00'01'10'01);
  const std::vector<float> tq2_0 = floats(35, 256, tq2 + half);
  EXPECT_EQ(tq2_0[3], 0.0f);
  EXPECT_EQ(tq2_0[35], 0.5f);
  EXPECT_EQ(tq2_0[67], 0.0f);
  EXPECT_EQ(tq2_0[99], -0.5f);

  // Base 3: the byte is ceil(256 x / 243) of x = sum of digits 81, 27, 9, 3, 1.
  const auto packed = [](int a, int b, int c, int d, int e) {
    const int x = 81 * a + 27 * b + 9 * c + 3 * d + e;
    return static_cast<char>((x * 256 + 242) / 243);
  };
  std::string tq1(52, packed(1, 1, 1, 1, 1));
  tq1[5] = packed(2, 1, 0, 1, 2);
  tq1[48 + 2] = packed(0, 2, 1, 0, 0);
  const std::vector<float> tq1_0 = floats(34, 256, tq1 + half);
  const float expected[] = {0.5f, 0, -0.5f, 0, 0.5f};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(tq1_0[static_cast<size_t>(5 + 32 * i)], expected[i]) << i;
  EXPECT_EQ(tq1_0[240 + 2], -0.5f);
  EXPECT_EQ(tq1_0[244 + 2], 0.5f);
  EXPECT_EQ(tq1_0[248 + 2], 0.0f);

  // FP4: elements i and i + 16 share a byte.
  std::string fp4(1, static_cast<char>(126));  // 1/2
  for (int i = 0; i < 16; ++i) fp4 += static_cast<char>(i << 4 | (15 - i));
  const std::vector<float> mxfp4 = floats(39, 32, fp4);
  EXPECT_EQ(mxfp4[0], -3.0f);
  EXPECT_EQ(mxfp4[14], 0.25f);
  EXPECT_EQ(mxfp4[16 + 7], 3.0f);
  EXPECT_EQ(mxfp4[16 + 9], -0.25f);
}

// Blocks of 64 and of 128 share a type number; the distance between tensors tells which one it is.
TEST_F(GgufTest, BothKindsOfQ2) {
  const std::string half("\x00\x38", 2);
  for (const size_t group : {64u, 128u}) {
    GgufBuilder b;
    std::string bytes;
    for (size_t i = 0; i < 4096 / group; ++i) {
      bytes += half + std::string(group / 4, static_cast<char>(0b11'10'01'00));
    }
    b.tensor("t", 42, {16, 256}, bytes);
    b.f32_tensor("u", {1});
    folder_.write("m.gguf", b.file());
    const Checkpoint checkpoint(path());
    std::vector<float> values(4096);
    checkpoint.read(*checkpoint.find("t"), 0, values.size(), values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], (static_cast<float>(i % 4) - 1) * 0.5f) << group << " " << i;
    }
  }
}

TEST_F(GgufTest, ConvertsALlama) {
  GgufBuilder b = llama();
  b.u32("tokenizer.ggml.eos_token_id", 3);
  b.strings("tokenizer.ggml.tokens", {"<|im_end|>"});
  const Status status = convert_file(b.file());
  EXPECT_TRUE(status.ok()) << status.text();
  const Checkpoint checkpoint = open_checkpoint(path());
  const Json config = checkpoint.document("config.json");
  EXPECT_EQ(config.at("model_type"), "llama");
  EXPECT_EQ(config.at("vocab_size"), 16);
  EXPECT_EQ(config.at("tie_word_embeddings"), true);
  EXPECT_EQ(config.at("rope_interleaved"), true);
  EXPECT_EQ(config.at("eos_token_id"), (Json{3, 0}));
  EXPECT_EQ(checkpoint.name(), "m");
  EXPECT_NE(checkpoint.find("model.layers.0.self_attn.q_proj.weight"), nullptr);
}

// -1 in any type means that there is no such token.
TEST_F(GgufTest, SpecialIdsThatNameNoToken) {
  const auto with = [](const std::string& key, uint32_t type, const std::string& bytes) {
    GgufBuilder b = llama();
    b.u32("tokenizer.ggml.eos_token_id", 3);
    b.pair("tokenizer.ggml." + key, type, bytes);
    return b.file();
  };
  const std::string none32 = GgufBuilder::raw(~uint32_t{0});
  const std::string none64 = GgufBuilder::raw(~uint64_t{0});
  for (const char* key : {"eot_token_id", "bos_token_id", "padding_token_id", "fim_pad_token_id"}) {
    for (const auto& [type, bytes] :
         {std::pair{4U, none32}, {5U, none32}, {10U, none64}, {11U, none64}}) {
      folder_.write("m.gguf", with(key, type, bytes));
      const Checkpoint checkpoint = open_checkpoint(path());
      EXPECT_EQ(checkpoint.document("config.json").at("eos_token_id"), Json::array({3})) << key;
      ASSERT_EQ(checkpoint.warnings().size(), 1U) << key << type;
      EXPECT_NE(checkpoint.warnings()[0].find(std::string("key tokenizer.ggml.") + key + " is -1"),
                std::string::npos);
    }
  }
  folder_.write("m.gguf", with("padding_token_id", 4, GgufBuilder::raw<uint32_t>(99)));
  EXPECT_EQ(open_checkpoint(path()).warnings().size(), 1U) << "nothing reads it";
  folder_.write("m.gguf", with("eot_token_id", 5, GgufBuilder::raw<int32_t>(5)));
  EXPECT_EQ(open_checkpoint(path()).document("config.json").at("eos_token_id"), (Json{3, 5}));
  for (const uint32_t id : {16U, 0xFFFFFFFEU}) {
    const Status status = convert_file(with("eot_token_id", 4, GgufBuilder::raw(id)));
    const std::string text = status.text();
    EXPECT_NE(text.find("m.gguf: key tokenizer.ggml.eot_token_id"), std::string::npos) << text;
    EXPECT_NE(text.find("--ignore-key tokenizer.ggml.eot_token_id"), std::string::npos) << text;
  }
}

TEST_F(GgufTest, IsFoundByItsFirstBytesAndNamedInAFolder) {
  folder_.write("sha256-0123", llama().file());
  EXPECT_NE(Checkpoint(folder_.file("sha256-0123")).find("output_norm.weight"), nullptr);
  const auto refused = [](const std::string& path, const char* why) {
    const Status status = guarded([&] { Checkpoint checkpoint(path); });
    EXPECT_EQ(status.code(), MOE_ERR_NOT_FOUND);
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
  };
  folder_.write("notes.txt", "GG");
  refused(folder_.file("notes.txt"), "nor a .gguf file");
  folder_.write("model.gguf", llama().file());
  refused(folder_.file("."), "model.gguf: convert that file");
}

// The first case is one where 30.0 / 88 * 88 is less than 30.
TEST_F(GgufTest, TheRotatedPartIsTheWholeNumberInTheFile) {
  for (const auto& [width, dims] : {std::pair{88u, 30u}, {88u, 60u}, {100u, 58u}, {100u, 50u}}) {
    GgufBuilder b;
    b.string("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"context_length", 64u},
                                     {"embedding_length", 8u},
                                     {"block_count", 1u},
                                     {"feed_forward_length", 12u},
                                     {"attention.head_count", 2u},
                                     {"attention.key_length", width},
                                     {"rope.dimension_count", dims}}) {
      b.u32(std::string("llama.") + key, value);
    }
    b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    b.f32_tensor("token_embd.weight", {16, 8});
    folder_.write("m.gguf", b.file());
    const Imported in = import_checkpoint(open_checkpoint(path()));
    EXPECT_EQ(in.config.layers[0].attention.rope.dims, static_cast<int32_t>(dims));
  }
}

TEST_F(GgufTest, UnknownKeysAndTensorsAreNamed) {
  const auto expect = [&](GgufBuilder& b, moe_status code, const char* part) {
    const Status status = convert_file(b.file());
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(part), std::string::npos) << status.text();
  };
  GgufBuilder b = llama();
  b.f32("llama.final_logit_softcapping", 30);
  expect(b, MOE_ERR_UNSUPPORTED, "key \"llama.final_logit_softcapping\" with value 30.0");
  b = llama();
  b.string("llama.rope.scaling.type", "dynamic");
  expect(b, MOE_ERR_UNSUPPORTED, "llama.rope.scaling.type with value \"dynamic\"");
  b = llama();
  b.u32("llama.attention.sliding_window", 8);
  expect(b, MOE_ERR_UNSUPPORTED,
         "m.gguf: key llama.attention.sliding_window with value 8 is not supported");
  b = llama();
  b.f32_tensor("blk.0.attn_q_norm.weight", {4});
  expect(b, MOE_ERR_FORMAT,
         "tensor blk.0.attn_q_norm.weight: the file's keys describe no such tensor");
  b = llama();
  b.string("tokenizer.ggml.model", "t5");
  b.strings("tokenizer.ggml.tokens", {"a"});
  expect(b, MOE_ERR_UNSUPPORTED,
         "tokenizer.ggml.model \"t5\"; gpt2, llama, gemma4 and bert are read");
  b = llama();
  b.string("tokenizer.ggml.model", "bert");
  b.strings("tokenizer.ggml.tokens", {"a"});
  expect(b, MOE_ERR_FORMAT, "tokenizer.ggml.tokens has no [UNK], and no key names one");
  b = llama();
  b.string("tokenizer.ggml.model", "gpt2");
  b.string("tokenizer.ggml.pre", "surprise");
  b.strings("tokenizer.ggml.tokens", {"a"});
  b.strings("tokenizer.ggml.merges", {});
  expect(b, MOE_ERR_UNSUPPORTED, "tokenizer.ggml.pre \"surprise\" is not known");
  GgufBuilder other;
  other.string("general.architecture", "mamba");
  expect(other, MOE_ERR_UNSUPPORTED, "unknown architecture \"mamba\"; known: llama, qwen2");
  GgufBuilder beyond;
  beyond.string("general.architecture", "gemma3n");
  expect(beyond, MOE_ERR_UNSUPPORTED,
         "general.architecture \"gemma3n\" is not supported: no layer here computes Gemma 3n's");
}

// The key-value pairs of a PhiMoE with positions scaled for a long context.
GgufBuilder phimoe(bool with_factors) {
  GgufBuilder b;
  b.string("general.architecture", "phimoe");
  for (const auto& [key, value] : {std::pair{"context_length", 64},
                                   {"embedding_length", 8},
                                   {"feed_forward_length", 12},
                                   {"attention.head_count", 2},
                                   {"attention.sliding_window", 0},
                                   {"rope.dimension_count", 4},
                                   {"rope.scaling.original_context_length", 32},
                                   {"expert_count", 4},
                                   {"expert_used_count", 2}}) {
    b.u32(std::string("phimoe.") + key, static_cast<uint32_t>(value));
  }
  b.f32("phimoe.rope.scaling.attn_factor", 1.25f);
  b.f32_tensor("output.bias", {16});
  if (with_factors) b.f32_tensor("rope_factors_long.weight", {2}, 4.0f);
  return b;
}

TEST_F(GgufTest, PhimoesFactorsAreLongrope) {
  GgufBuilder b = phimoe(true);
  b.f32_tensor("rope_factors_short.weight", {2}, 1.5f);
  b.f32_tensor("blk.0.attn_norm.bias", {8});
  b.f32_tensor("blk.0.attn_q.bias", {8});
  folder_.write("m.gguf", b.file());
  const Checkpoint checkpoint = open_checkpoint(path());
  const Json config = checkpoint.document("config.json");
  EXPECT_EQ(config.at("model_type"), "phimoe");
  EXPECT_EQ(config.at("lm_head_bias"), true);
  EXPECT_EQ(config.at("attention_bias"), true);
  const Json scaling = {{"rope_type", "longrope"},
                        {"short_factor", {1.5, 1.5}},
                        {"long_factor", {4.0, 4.0}},
                        {"attention_factor", 1.25},
                        {"original_max_position_embeddings", 32}};
  EXPECT_EQ(config.at("rope_scaling"), scaling);
  EXPECT_NE(checkpoint.find("lm_head.bias"), nullptr);
  EXPECT_NE(checkpoint.find("model.layers.0.input_layernorm.bias"), nullptr);
}

TEST_F(GgufTest, PhimoeKeysThatDoNotFitAreNamed) {
  const auto expect = [&](const GgufBuilder& b, moe_status code, const char* part) {
    const Status status = convert_file(b.file());
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(part), std::string::npos) << status.text();
  };
  expect(phimoe(false), MOE_ERR_UNSUPPORTED, "phimoe.rope.scaling.attn_factor with value 1.25");
  GgufBuilder b = phimoe(true);
  expect(b, MOE_ERR_FORMAT, "no tensor rope_factors_short.weight");
  b.string("phimoe.rope.scaling.type", "yarn");
  expect(b, MOE_ERR_UNSUPPORTED, "phimoe.rope.scaling.type with value \"yarn\"");
  b = phimoe(true);
  b.f32_tensor("rope_factors_short.weight", {2});
  b.u32("phimoe.expert_gating_func", 2);
  expect(b, MOE_ERR_UNSUPPORTED, "phimoe.expert_gating_func with value 2");
  b = llama();
  b.f32_tensor("rope_factors_long.weight", {2});
  expect(b, MOE_ERR_FORMAT, "rope_factors_long.weight: the file's keys describe no such tensor");
}

// A DeepSeek-V2 of one layer with two heads (keys 4 + 2 wide, values 3) and a latent of 6. `split`:
// with separate key and value matrices, as in newer files.
GgufBuilder deepseek(bool split, int n_blocks = 1) {
  GgufBuilder b;
  const auto add = [&](const char* key, int value) {
    b.u32(std::string("deepseek2.") + key, static_cast<uint32_t>(value));
  };
  b.string("general.architecture", "deepseek2");
  for (const auto& [key, value] : {std::pair{"context_length", 64},
                                   {"embedding_length", 8},
                                   {"block_count", n_blocks},
                                   {"feed_forward_length", 12},
                                   {"attention.head_count", 2},
                                   {"attention.kv_lora_rank", 6},
                                   {"rope.dimension_count", 2},
                                   {"expert_count", 2},
                                   {"expert_used_count", 1},
                                   {"expert_shared_count", 2},
                                   {"expert_feed_forward_length", 5},
                                   {"leading_dense_block_count", 0}}) {
    add(key, value);
  }
  b.f32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
  b.f32("deepseek2.rope.freq_base", 1e4f);
  b.f32("deepseek2.expert_weights_scale", 1.5f);
  add("attention.head_count_kv", split ? 1 : 2);
  add("attention.key_length", split ? 8 : 6);
  add("attention.value_length", split ? 6 : 3);
  if (split) add("attention.key_length_mla", 6);
  if (split) add("attention.value_length_mla", 3);
  b.f32_tensor("token_embd.weight", {16, 8});
  b.f32_tensor("output_norm.weight", {8});
  const auto layer = [&](const char* name, const std::vector<uint64_t>& shape) {
    b.f32_tensor(std::string("blk.0.") + name + ".weight", shape);
  };
  layer("attn_norm", {8});
  layer("ffn_norm", {8});
  layer("attn_q", {12, 8});
  layer("attn_output", {8, 6});
  layer("attn_kv_a_mqa", {8, 8});
  layer("attn_kv_a_norm", {6});
  layer("ffn_gate_inp", {2, 8});
  for (const char* part : {"ffn_gate", "ffn_up"}) {
    layer((part + std::string("_exps")).c_str(), {2, 5, 8});
    layer((part + std::string("_shexp")).c_str(), {10, 8});
  }
  layer("ffn_down_exps", {2, 8, 5});
  layer("ffn_down_shexp", {8, 10});
  std::vector<float> both, k(2 * 6 * 4), v;  // (heads, 4 + 3, 6), (heads, 6, 4), (heads, 3, 6)
  for (size_t i = 0; i < 84; ++i) {
    const size_t head = i / 42, row = i / 6 % 7, col = i % 6;
    both.push_back(static_cast<float>(i));
    if (row < 4) k[(head * 6 + col) * 4 + row] = both.back();
    if (row >= 4) v.push_back(both.back());
  }
  if (split) {
    b.tensor("blk.0.attn_k_b.weight", 0, {2, 6, 4}, test::as_bytes(k));
    b.tensor("blk.0.attn_v_b.weight", 0, {2, 3, 6}, test::as_bytes(v));
  } else {
    b.tensor("blk.0.attn_kv_b.weight", 0, {14, 6}, test::as_bytes(both));
  }
  return b;
}

TEST_F(GgufTest, LatentAttentionInBothForms) {
  std::string files[2];
  for (const bool split : {false, true}) {
    folder_.write("m.gguf", deepseek(split).file());
    MemorySink sink;
    ConvertOptions options;
    options.weights = "f32";
    ConvertReport report;
    const Status status = convert_to_sink(path(), sink, options, &report);
    ASSERT_TRUE(status.ok()) << status.text();
    files[split] = std::string(reinterpret_cast<const char*>(sink.data()), sink.size());
  }
  EXPECT_EQ(files[0], files[1]);
  const Json config = open_checkpoint(path()).document("config.json");
  for (const auto& [key, value] : {std::pair{"num_key_value_heads", 2},
                                   {"qk_nope_head_dim", 4},
                                   {"qk_rope_head_dim", 2},
                                   {"v_head_dim", 3},
                                   {"n_routed_experts", 2},
                                   {"n_shared_experts", 2},
                                   {"first_k_dense_replace", 0}}) {
    EXPECT_EQ(config.at(key), value) << key;
  }
}

// The biases of the selection tell the router of a file that lacks the key (GLM-4.7-Flash).
TEST_F(GgufTest, ARouterWithoutItsKey) {
  for (const bool biased : {false, true}) {
    GgufBuilder b = deepseek(true);
    if (biased) b.f32_tensor("blk.0.exp_probs_b.bias", {2});
    folder_.write("m.gguf", b.file());
    EXPECT_EQ(open_checkpoint(path()).document("config.json").at("model_type"),
              biased ? "deepseek_v3" : "deepseek_v2");
    const Status status = convert_file(b.file());
    EXPECT_TRUE(status.ok()) << status.text();
  }
}

// Layers of multi-token prediction are counted with the others, and may be missing.
TEST_F(GgufTest, PredictionLayersAreNoOthers) {
  GgufBuilder b = deepseek(true, 2);
  b.u32("deepseek2.nextn_predict_layers", 1);
  const Status without = convert_file(b.file());
  ASSERT_TRUE(without.ok()) << without.text();
  EXPECT_EQ(open_checkpoint(path()).document("config.json").at("num_hidden_layers"), 1);
  b.f32_tensor("blk.1.nextn.eh_proj.weight", {8, 16});
  b.f32_tensor("blk.1.attn_norm.weight", {8});
  const Status status = convert_file(b.file());
  EXPECT_EQ(status.code(), MOE_ERR_NOT_FOUND);
  EXPECT_NE(std::string(status.text()).find("tensor blk.1."), std::string::npos) << status.text();
}

TEST_F(GgufTest, DeepseekKeysThatDoNotFitAreNamed) {
  const auto expect = [&](const GgufBuilder& b, const char* part,
                          moe_status code = MOE_ERR_UNSUPPORTED) {
    const Status status = convert_file(b.file());
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(part), std::string::npos) << status.text();
  };
  GgufBuilder b = deepseek(true);
  b.u32("deepseek2.attention.q_lora_rank", 12);
  expect(b, "tensor blk.0.attn_q_b.weight is missing", MOE_ERR_NOT_FOUND);
  b = deepseek(true);
  b.u32("deepseek2.expert_group_count", 8);
  expect(b, "m.gguf: key deepseek2.expert_group_count: ", MOE_ERR_FORMAT);
  b = deepseek(true);
  b.u32("deepseek2.expert_gating_func", 3);
  expect(b, "deepseek2.expert_gating_func with value 3");
  b = deepseek(true);
  b.pair("deepseek2.expert_weights_norm", 7, std::string(1, '\1'));
  expect(b, "m.gguf: key deepseek2.expert_weights_norm: true");
  b = deepseek(true);
  b.f32("deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
  expect(b,
         "deepseek2.rope.scaling.yarn_log_multiplier");  // the file does not say what it multiplies
  b = deepseek(false);
  b.u32("deepseek2.attention.key_length_mla", 6);  // but every head has its own keys and values
  expect(b, "deepseek2.attention.head_count_kv with value 2");
  GgufBuilder dense;
  dense.string("general.architecture", "deepseek2");
  for (const char* key : {"attention.head_count", "attention.head_count_kv", "rope.dimension_count",
                          "attention.kv_lora_rank", "attention.value_length"}) {
    dense.u32(std::string("deepseek2.") + key, 1);
  }
  dense.u32("deepseek2.attention.key_length", 3);
  expect(dense, "deepseek2 without experts");
}

TEST_F(GgufTest, AllPartsOfASplitFile) {
  GgufBuilder first = llama(), second;
  second.u32("split.no", 1);
  second.f32_tensor("output.weight", {16, 8});
  folder_.write("m-00001-of-00002.gguf", first.file());
  const std::string name = folder_.file("m-00001-of-00002.gguf");
  ConvertReport report;
  const Status missing = convert(name, folder_.file("m.moe"), {}, &report);
  EXPECT_EQ(missing.code(), MOE_ERR_NOT_FOUND);
  EXPECT_NE(std::string(missing.text()).find("m-00002-of-00002.gguf"), std::string::npos);
  folder_.write("m-00002-of-00002.gguf", second.file());
  const Status status = convert(name, folder_.file("m.moe"), {}, &report);
  EXPECT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(open_checkpoint(name).document("config.json").at("tie_word_embeddings"), false);
}

}  // namespace
}  // namespace moe
