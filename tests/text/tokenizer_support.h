// SPDX-License-Identifier: MIT
#pragma once
// Tokenizers for tests, made as by the converter and the library: JSON, FlatBuffer, tables.

#include <memory>
#include <string>
#include <vector>

#include "formats/import/failure.h"
#include "src/c_api/load_tokenizer.h"
#include "src/convert/tokenizer/tokenizer_write.h"

namespace moe {

/// A FlatBuffer and the tokenizer that views it.
struct LoadedTokenizer {
  flatbuffers::FlatBufferBuilder builder;
  Box<Tokenizer> tokenizer;
  Status status;
};

inline std::unique_ptr<LoadedTokenizer> load(const TokenizerData& data, uint32_t model_vocab = 0,
                                             const Allocator& allocator = system_allocator(),
                                             int32_t begin_id = -1) {
  auto out = std::make_unique<LoadedTokenizer>();
  out->builder.Finish(write_tokenizer(out->builder, data));
  const auto* table = flatbuffers::GetRoot<fbs::Tokenizer>(out->builder.GetBufferPointer());
  auto result = load_tokenizer(*table, model_vocab, allocator, begin_id);
  out->status = result.status();
  if (result.ok()) out->tokenizer = std::move(result.value());
  return out;
}

using IdList = std::vector<int32_t>;

inline IdList encode(const Tokenizer& tokenizer, std::string_view text, bool add_special = false,
                     bool parse_special = true) {
  Array<int32_t> ids;
  check(tokenizer.encode(text, add_special, parse_special, ids));
  return {ids.begin(), ids.end()};
}

inline std::string decode(const Tokenizer& tokenizer, const IdList& ids,
                          bool skip_special = false) {
  String text;
  check(tokenizer.decode({ids.data(), ids.size()}, skip_special, text));
  return std::string(text.view());
}

/// Sets the vocabulary to these pieces.
inline void set_pieces(TokenizerData& data, const std::vector<std::string>& pieces) {
  data.token_bytes.clear();
  data.token_ends.clear();
  for (const std::string& piece : pieces) {
    data.token_bytes.insert(data.token_bytes.end(), piece.begin(), piece.end());
    data.token_bytes.push_back(0);
    data.token_ends.push_back(static_cast<uint32_t>(data.token_bytes.size()));
  }
}

/// A small BPE: a b c ab abc <x>, where <x> is added and special.
inline TokenizerData small_bpe() {
  TokenizerData data;
  data.kind = "bpe";
  set_pieces(data, {"a", "b", "c", "ab", "abc", "<x>"});
  data.merges = {0, 1, 3, 3, 2, 4};
  data.added_ids = {5};
  data.added_flags = {kAddedSpecial};
  data.decoders.emplace_back();
  data.decoders.back().kind = "fuse";
  return data;
}

/// A tokenizer.json: a b ab u <s>, where u is unknown, and <s> is added and begins every text.
inline constexpr char kBpe[] = R"({
  "version": "1.0",
  "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null, "pre_tokenizer": null, "decoder": {"type": "Fuse"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}}},
  "model": {"type": "BPE", "dropout": null, "unk_token": "u", "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"a": 0, "b": 1, "ab": 2, "u": 3}, "merges": [["a", "b"]]}
})";

inline Json bpe() { return parse_json(kBpe, "test"); }

inline TextStepData step(const std::string& kind) {
  TextStepData s;
  s.kind = kind;
  return s;
}

}  // namespace moe
