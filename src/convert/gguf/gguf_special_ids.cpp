// SPDX-License-Identifier: MIT
// Ids of special tokens in a GGUF file that name no token.

#include <algorithm>
#include <vector>

#include "formats/import/failure.h"
#include "formats/import/shell_quoted.h"
#include "src/convert/gguf/gguf_source.h"

namespace moe {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kSuffix = "_token_id";

// These decide where a text begins or a reply ends. Others have no effect.
constexpr std::string_view kReadIds[] = {"bos", "eos", "eot", "eom"};
constexpr std::string_view kBertIds[] = {"cls", "seperator"};  // the same of BERT's tokenizer

bool is_read(std::string_view key, bool bert) {
  key.remove_prefix(kPrefix.size());
  key.remove_suffix(kSuffix.size());
  const auto in = [key](const auto& ids) {
    return std::find(std::begin(ids), std::end(ids), key) != std::end(ids);
  };
  return in(kReadIds) || (bert && in(kBertIds));
}

// -1 in any type of integer.
bool is_none(const Json& id) {
  if (!id.is_number_unsigned()) return id.get<int64_t>() == -1;
  const auto value = id.get<uint64_t>();
  return value == UINT32_MAX || value == UINT64_MAX;
}

// The number of tokens or of rows of the embedding, whichever is larger.
uint64_t vocabulary_size(const Checkpoint& checkpoint) {
  const Json* const tokens = checkpoint.metadata().find("tokenizer.ggml.tokens");
  const SourceTensor* const embedding = checkpoint.find("token_embd.weight");
  const uint64_t n = tokens != nullptr && tokens->is_array() ? tokens->size() : 0;
  const bool has_rows = embedding != nullptr && !embedding->shape.empty();
  return std::max(n, has_rows ? static_cast<uint64_t>(embedding->shape[0]) : 0);
}

}  // namespace

void check_special_ids(Checkpoint* checkpoint) {
  const Json& metadata = checkpoint->metadata();
  const uint64_t n = vocabulary_size(*checkpoint);
  const Json* const tokenizer = metadata.find("tokenizer.ggml.model");
  const bool bert = tokenizer != nullptr && *tokenizer == "bert";
  std::vector<std::string> absent;
  for (const auto& [key, id] : metadata.items()) {
    const bool names_token = key.size() > kPrefix.size() + kSuffix.size() &&
                             key.starts_with(kPrefix) && key.ends_with(kSuffix);
    if (!names_token) continue;
    if (!id.is_number_integer()) {
      fail(
          MOE_ERR_FORMAT,
          "%s: key %s: expected a token's id, found %.60s; without it: moe convert --ignore-key %s",
          checkpoint->path().c_str(), key.c_str(), id.dump().c_str(), shell_quoted(key).c_str());
    }
    const bool none = is_none(id);
    const bool negative = !id.is_number_unsigned() && id.get<int64_t>() < 0;
    if (!none && !negative && id.get<uint64_t>() < n) continue;
    if (!none && is_read(key, bert)) {
      fail(MOE_ERR_FORMAT,
           "%.200s: key %s: there is no token %.24s, the vocabulary has %llu; without it: "
           "moe convert --ignore-key %s",
           checkpoint->path().c_str(), key.c_str(), id.dump().c_str(),
           static_cast<unsigned long long>(n), shell_quoted(key).c_str());
    }
    absent.push_back(key);
    checkpoint->warn(checkpoint->path() + ": key " + key + " is " + (none ? "-1" : id.dump()) +
                     ": there is no such token, so the key is left out");
  }
  for (const std::string& key : absent) checkpoint->ignore_keys(key);
}

}  // namespace moe
