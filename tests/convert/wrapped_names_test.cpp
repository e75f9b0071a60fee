// SPDX-License-Identifier: MIT
// Checkpoints that were saved from a wrapped model.

#include "formats/import/tensor_names.h"
#include "src/convert/gguf/gguf_source.h"
#include "tests/convert/transformers_fixture.h"

namespace moe {
namespace {

constexpr const char* kNorm = "model.layers.0.input_layernorm.weight";

TEST(WrappedNames, LoseWhatTheWrapperAdded) {
  for (const char* prefix :
       {"_orig_mod.", "module.", "base_model.model.", "model.", "module._orig_mod.",
        "_orig_mod.module.", "base_model.model._orig_mod.", "_fsdp_wrapped_module.",
        "module.module.", "_forward_module._orig_mod.", "model._orig_mod.",
        "model.base_model.model."}) {
    EXPECT_EQ(unwrapped_name(std::string(prefix) + kNorm), kNorm);
    EXPECT_EQ(unwrapped_name(std::string(prefix) + "lm_head.weight"), "lm_head.weight");
  }
  EXPECT_EQ(unwrapped_name("model.layers._orig_mod.0._checkpoint_wrapped_module.mlp.up.weight"),
            "model.layers.0.mlp.up.weight");
  for (const char* name :
       {kNorm, "lm_head.weight", "encoder.layers.0.module.weight", "a_orig_mod.b",
        "language_model.model.norm.weight", "module", "model.embed_tokens.weight"}) {
    EXPECT_EQ(unwrapped_name(name), name);
  }
}

TEST(WrappedNames, AnyNumberOfWrappersIsRemovedInOnePass) {
  std::string name, prefixes;
  for (int i = 0; i < 200'000; ++i) {
    name += "_orig_mod.";
    prefixes += "module.";
  }
  EXPECT_EQ(unwrapped_name(name + kNorm), kNorm);
  EXPECT_EQ(unwrapped_name(prefixes + kNorm), kNorm);
  EXPECT_EQ(unwrapped_name(""), "");
  EXPECT_EQ(unwrapped_name("."), ".");
}

TEST(WrappedNames, OfAdapters) {
  for (const char* name :
       {"q_proj.lora_A.default.weight", "lora_embedding_B", "q.base_layer.weight",
        "score.modules_to_save.default.weight", "q.hada_w1_a"}) {
    EXPECT_TRUE(is_adapter_name(name)) << name;
  }
  for (const char* name : {kNorm, "explora_A.weight", "base_layers.0.weight", ""}) {
    EXPECT_FALSE(is_adapter_name(name)) << name;
  }
}

class WrappedCheckpoint : public TransformersTest {};

// All names, those of some tensors alone, and any prefix that all share give the same model.
TEST_F(WrappedCheckpoint, ConvertsAsTheModelItself) {
  const Checkpoint original("tests/data/families/mixtral");
  const auto add = [](const char* prefix) {
    return [prefix](const std::string& name) { return prefix + name; };
  };
  const std::string expected = converted(original, add(""));
  for (const char* prefix :
       {"_orig_mod.", "module.", "base_model.model.", "model.", "policy.net."}) {
    EXPECT_EQ(converted(original, add(prefix)), expected) << prefix;
  }
  EXPECT_EQ(converted(original,
                      [](const std::string& name) {
                        return (name.find("layers.0.") != std::string::npos ? "_orig_mod." : "") +
                               name;
                      }),
            expected);
  const auto inside = [](std::string name) {
    const size_t at = name.find("layers.1.");
    return at == std::string::npos ? name : name.insert(at + 9, "_checkpoint_wrapped_module.");
  };
  EXPECT_EQ(converted(original, inside), expected);
}

TEST_F(WrappedCheckpoint, SaysSo) {
  const auto tensor = [](float x) { return test::f32_tensor({1}, {x}); };
  folder_.write("model.safetensors",
                test::safetensors_text(
                    {{"_orig_mod.model.norm.weight", tensor(1)}, {"lm_head.weight", tensor(2)}}));
  const Checkpoint checkpoint(folder_.path());
  ASSERT_EQ(checkpoint.warnings().size(), 1u);
  EXPECT_EQ(checkpoint.warnings()[0],
            "1 of 2 tensors have names of a wrapped model, which are read without what the wrapper "
            "added: _orig_mod.model.norm.weight as model.norm.weight");
  // Two tensors of one meaning.
  folder_.write("model.safetensors",
                test::safetensors_text({{"_orig_mod.model.norm.weight", tensor(1)},
                                        {"model.norm.weight", tensor(2)}}));
  const Status status = guarded([&] { Checkpoint{folder_.path()}; });
  EXPECT_EQ(status.code(), MOE_ERR_FORMAT);
}

// An index names what is in the files, or what is meant.
TEST_F(WrappedCheckpoint, WithAnIndex) {
  folder_.write("one.safetensors",
                test::safetensors_text({{"module.a", test::f32_tensor({1}, {1})}}));
  for (const char* name : {"a", "module.a"}) {
    folder_.write("model.safetensors.index.json",
                  std::string(R"({"weight_map": {")") + name + R"(": "one.safetensors"}})");
    EXPECT_NE(Checkpoint(folder_.path()).find("a"), nullptr);
  }
}

class UnknownKeys : public TransformersTest {};

TEST_F(UnknownKeys, AreNamedAtOnce) {
  EXPECT_EQ(
      error(R"({"use_flash_attn": true, "foo_a": 1, "foo_b": 2,
                     "rope_scaling": {"type": "linear", "factor": 2.0, "new": "x"}})",
            MOE_ERR_UNSUPPORTED),
      "config.json: keys foo_a (1), foo_b (2), use_flash_attn (true), rope_scaling.new (\"x\") "
      "are not known to this importer and may change what the model computes; if they do not: "
      "moe convert --ignore-key foo_a,foo_b,use_flash_attn,rope_scaling.new");
  EXPECT_EQ(
      error(R"x({"$(id>pwn)": 1})x", MOE_ERR_UNSUPPORTED),
      "config.json: key \"$(id>pwn)\" with value 1 is not known to this importer and may change "
      "what the model computes; if it does not: moe convert --ignore-key '$(id>pwn)'");
  std::string many = "{";
  for (int i = 0; i < 60; ++i)
    many += (i == 0 ? "\"key_" : ", \"key_") + std::to_string(100 + i) + "\": 1";
  const std::string text = error((many + "}").c_str(), MOE_ERR_UNSUPPORTED);
  EXPECT_TRUE(text.starts_with("config.json: 60 keys are not known")) << text;
  EXPECT_TRUE(text.ends_with(" more")) << text;
}

TEST_F(UnknownKeys, CanBeIgnoredInsideObjects) {
  const Json config = parse_json(
      test::patched(
          R"({"a,b": 1, "c": 2, "rope_scaling": {"x": {"y": 3, "z": [{"w": 4}, {"w": 5}]}, "k.l": 6}})",
          kLlama),
      "test");
  folder_.write("config.json", config.dump());
  Checkpoint checkpoint(folder_.path());
  checkpoint.ignore_keys("a,b");
  checkpoint.ignore_keys("rope_scaling.x.y,c,rope_scaling.k.l,rope_scaling.x.z[1].w");
  const Json left = checkpoint.document("config.json");
  EXPECT_FALSE(left.contains("a,b"));
  EXPECT_FALSE(left.contains("c"));
  EXPECT_EQ(left.at("rope_scaling").dump(), R"({"x":{"z":[{"w":4},{}]}})");
  for (const auto& [key, hint] : {std::pair{"w", "; there is rope_scaling.x.z[0].w"},
                                  {"nothing", "that could be ignored"},
                                  {"rope_scaling.x.z[9].w", "that could be ignored"},
                                  {"rope_scaling.x.z[0]", "that could be ignored"},
                                  {"vocab_size,nothing", "no key \"nothing\""}}) {
    const Status status = guarded([&, k = key] { checkpoint.ignore_keys(k); });
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT) << key;
    EXPECT_NE(std::string(status.text()).find(hint), std::string::npos) << status.text();
  }
}

TEST_F(UnknownKeys, OfScalingThatChangeNothing) {
  const auto yarn = [&](const char* more) {
    return read_patched(("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, " +
                         std::string(more) + " \"original_max_position_embeddings\": 16}}")
                            .c_str());
  };
  const Imported plain = yarn("");
  for (const char* more : {"\"finetuned\": true,", "\"attn_factor\": 1.0,", "\"dynamic\": false,",
                           "\"extrapolation_factor\": 1,", "\"_note\": [],", "\"other\": null,"}) {
    const Imported read = yarn(more);
    EXPECT_TRUE(read.warnings.empty()) << more;
    EXPECT_EQ(read.config.layers[0].attention.rope.factor,
              plain.config.layers[0].attention.rope.factor);
  }
  const Imported other = yarn("\"high_freq_factor\": 4,");
  ASSERT_EQ(other.warnings.size(), 1u);
  EXPECT_EQ(other.warnings[0],
            "config.json: rope_scaling.high_freq_factor is not used: it has no meaning for the "
            "type yarn");
  error(R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "attn_factor": 2.0}})",
        MOE_ERR_UNSUPPORTED);
  error(R"({"rope_scaling": {"factor": 4.0}})", MOE_ERR_UNSUPPORTED);
}

}  // namespace
}  // namespace moe
