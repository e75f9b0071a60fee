// SPDX-License-Identifier: MIT
#pragma once
// Reads the tokenizer of a Hugging Face checkpoint: tokenizer.json as written by the package
// `tokenizers` (version 1.0), with special tokens from tokenizer_config.json or
// special_tokens_map.json. Throws a Failure that names the place in the file; unsupported features
// (WordLevel, dropout ...) are rejected by name.

#include <cstdint>
#include <string>
#include <vector>

#include "formats/import/checkpoint.h"

namespace moe {

/// TextStepSpec that owns its memory.
struct TextStepData {
  std::string kind;
  std::string pattern;
  std::string content;
  std::string behavior;
  std::string scheme;
  std::vector<uint8_t> data;
  uint32_t start = 0;
  uint32_t stop = 0;
  bool regex = false;
  bool invert = false;
  bool flag = false;
};

/// TokenizerSpec that owns its memory; src/text/spec.h explains the fields.
struct TokenizerData {
  std::string kind = "bytes";
  std::vector<uint8_t> token_bytes;
  std::vector<uint32_t> token_ends;
  std::vector<double> scores;
  std::vector<uint32_t> merges;
  std::vector<uint32_t> added_ids;
  std::vector<uint8_t> added_flags;
  std::vector<TextStepData> normalizers;
  std::vector<TextStepData> pre_tokenizers;
  std::vector<TextStepData> decoders;
  std::vector<uint32_t> prefix;
  std::vector<uint32_t> suffix;
  std::vector<uint32_t> between;
  bool second_type = false;
  int32_t unk_id = -1;
  int32_t bos_id = -1;
  int32_t eos_id = -1;
  int32_t pad_id = -1;
  int32_t mask_id = -1;  // written to the configuration
  bool byte_fallback = false;
  bool fuse_unk = false;
  bool ignore_merges = false;
  std::string continuing_prefix;
  std::string end_suffix;
  std::string chat_template;
  std::vector<std::string> warnings;  // of the files beside tokenizer.json, a sentence each
  uint32_t max_word_characters = 100;
};

/// `folder`/`name` (usually tokenizer.json) and the files next to it that name special tokens.
TokenizerData read_tokenizer(const std::string& folder, const std::string& name = "tokenizer.json");

/// The same documents of a checkpoint, which may be a GGUF file.
TokenizerData read_tokenizer(const Checkpoint& checkpoint, const std::string& name);

/// Only the document. `what` prefixes errors.
TokenizerData parse_tokenizer(const Json& document, const std::string& what);

}  // namespace moe
