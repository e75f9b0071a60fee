// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints of two shards with an index, and the changes that a fuzzer's input makes to their
// files.

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/string.h"
#include "tests/convert/tiny_checkpoint.h"
#include "tests/support/fuzz_bytes.h"

namespace moe {

/// The files of a folder by name.
using Files = std::map<std::string, std::string>;

inline constexpr const char* kIndex = "model.safetensors.index.json";
inline constexpr const char* kShards[] = {"model-1.safetensors", "model-2.safetensors"};
inline constexpr const char* kFamilies[] = {
    "bitnet_packed",   "deepseek_v2", "llama",  "mixtral",     "qwen2_moe",
    "torchscale_xmoe", "gptq",        "awq",    "w4a16",       "w8a8",
    "deepseek_v3_fp8", "nf4",         "gptq_8", "w8a16_group", "llm_int8",
    "w8a8_tensor",     "nvfp4",       "mxfp4",  "fp8_fused",   "bailing_moe"};
inline constexpr const char* kTokenizer = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 4, "content": "<s>", "special": true, "lstrip": false, "rstrip": false,
                    "normalized": false, "single_word": false}],
  "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
  "trim_offsets": true, "use_regex": true}, "post_processor": null, "decoder": {"type": "ByteLevel",
  "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE",
  "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
  "fuse_unk": false, "byte_fallback": false, "merges": ["a b", "ab c"], "vocab":
  {"a": 0, "b": 1, "c": 2, "ab": 3, "<s>": 4, "abc": 5}}})";

// Replacements for a value, including paths that leave the folder.
inline constexpr std::string_view kTokens =
    R"(0 -1 1 2 3 5 64 4096 65537 2147483648 1e308 -1e-40 0.5 null true false [] {} "" [1,2] [3,4] )"
    R"([0,18446744073709551615] "model-1.safetensors" "model-2.safetensors" ".safetensors" )"
    R"("../outside/model-2.safetensors" "/proc/self/maps" "..\\model-2.safetensors" )"
    R"("x/../model-2.safetensors" "model-2.safetensors\u0000.safetensors" "tokenizer.json" )"
    R"("../outside/tokenizer.json" "layers.1.moe.router.weight" "F32" "BF16" "F16" "I8" "U8" "I64" )"
    R"("F8_E4M3" "silu" "gelu" "yarn" "threshold" "cosine" "F8_E8M0" )";

inline std::string token(size_t which) {
  std::string_view rest = kTokens;
  const auto n = static_cast<size_t>(std::count(rest.begin(), rest.end(), ' '));
  for (which %= n; which > 0; --which) rest = slice(rest, rest.find(' ') + 1);
  return std::string(slice(rest, 0, rest.find(' ')));
}

inline uint64_t header_bytes(const std::string& file) {
  uint64_t n = 0;
  std::memcpy(&n, file.data(), sizeof n);
  return n;
}

/// Adds two shards with the tensors of `file`, and their index.
inline void add_shards(const std::string& file, Files* out) {
  const uint64_t n = header_bytes(file);
  const Json header = parse_json(file.substr(8, n), "header");
  test::RawTensors parts[2];
  Json map = Json::object();
  size_t next = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t shard = next++ % 2;
    const auto at = tensor.at("data_offsets").get<std::vector<size_t>>();
    parts[shard][name] = {tensor.at("dtype").text(), tensor.at("shape").get<std::vector<int64_t>>(),
                          file.substr(8 + n + at[0], at[1] - at[0])};
    map[name] = kShards[shard];
  }
  for (size_t i = 0; i < 2; ++i) (*out)[kShards[i]] = test::safetensors_text(parts[i]);
  (*out)[kIndex] = Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump();
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<Files> make_checkpoints() {
  std::vector<Files> out(1);
  const std::string config = test::patched(R"({"tokenizer": "tokenizer.json"})");
  out[0] = {{"config.json", config}, {"tokenizer.json", kTokenizer}};
  add_shards(test::safetensors_text(test::random_tensors(test::kTinyConfig)), &out[0]);
  for (const char* family : kFamilies) {
    const std::string folder = std::string(MOE_FAMILIES "/") + family;
    out.push_back(
        {{"config.json", read_file(folder + "/config.json")}, {"tokenizer.json", kTokenizer}});
    add_shards(read_file(folder + "/model.safetensors"), &out.back());
  }
  return out;
}

/// The position and length of the value after the next colon.
inline std::pair<size_t, size_t> next_value(const std::string& text, size_t from) {
  const size_t colon = text.find(':', from);
  if (colon == std::string::npos) return {text.size(), 0};
  const size_t begin = std::min(text.find_first_not_of(' ', colon + 1), text.size());
  size_t end = std::min(text.find_first_of(",}", begin), text.size());
  if (begin < end && text[begin] == '[') end = std::min(text.find(']', begin), text.size() - 1) + 1;
  return {begin, end - begin};
}

inline void change_text(FuzzBytes& in, std::string* text) {
  const uint8_t how = in.byte();
  const size_t at = in.below(65536) % (text->size() + 1);
  const std::string value = token(in.byte());
  if (how % 8 < 4) {
    const auto [begin, n] = next_value(*text, at);
    text->replace(begin, n, value);
  } else if (how % 8 == 4) {
    text->erase(at, in.byte());
  } else if (how % 8 == 5) {
    text->insert(at, in.text());
  } else if (how % 8 == 6) {
    text->insert(at, text->substr(at, in.byte()));
  } else {
    *text = in.take(in.below(2048));
  }
}

/// Changes one part of one file: of a shard, the header (with a correct length) or the data.
inline void change(FuzzBytes& in, Files* files) {
  auto file = files->begin();
  std::advance(file, in.below(files->size()));
  std::string& text = file->second;
  const uint8_t how = in.byte();
  if (how == 255) {
    files->erase(file);
  } else if (!file->first.ends_with(".safetensors") || text.size() < 8) {
    change_text(in, &text);
  } else if (how % 4 == 3) {
    const size_t at = in.below(65536) % text.size();
    if (how & 4) text.resize(at);
    if (at < text.size()) text[at] = static_cast<char>(in.byte());
  } else {
    const uint64_t n = std::min<uint64_t>(header_bytes(text), text.size() - 8);
    std::string header = text.substr(8, n);
    change_text(in, &header);
    text = test::safetensors_text(header, text.substr(8 + n));
  }
}

}  // namespace moe
