// SPDX-License-Identifier: MIT
// Drops such tokens and returns their texts; it is an error if an ordinary text could give one.
#include "src/convert/tokenizer/excess_tokens.h"

#include <algorithm>

#include "formats/import/failure.h"

namespace moe {
namespace {

size_t begin_of(const TokenizerData& data, size_t id) {
  return id == 0 ? 0 : data.token_ends[id - 1];
}

std::string text_of(const TokenizerData& data, size_t id) {
  const auto* bytes = reinterpret_cast<const char*>(data.token_bytes.data());
  const size_t begin = begin_of(data, id);
  return {bytes + begin, data.token_ends[id] - begin - 1};
}

// Whether a text can give the token in another way than by its name.
bool is_needed(const TokenizerData& data, uint32_t id) {
  const auto has = [id](const std::vector<uint32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  const auto n = static_cast<int32_t>(id);
  return has(data.merges) || has(data.prefix) || has(data.suffix) || data.unk_id == n ||
         data.bos_id == n || data.eos_id == n || data.mask_id == n;
}

}  // namespace

std::vector<std::string> drop_excess_tokens(TokenizerData* data, uint32_t vocab_size,
                                            const std::string& path) {
  std::vector<std::string> dropped;
  if (data->token_ends.size() <= vocab_size) return dropped;
  std::vector<bool> added(data->token_ends.size());
  for (const uint32_t id : data->added_ids) added[id] = true;
  for (uint32_t id = vocab_size; id < data->token_ends.size(); ++id) {
    const std::string text = text_of(*data, id);
    if (text.empty()) continue;
    if (!added[id] || is_needed(*data, id)) {
      fail(MOE_ERR_FORMAT,
           "%s: token \"%.60s\" has id %u, but the model's vocabulary only %u tokens", path.c_str(),
           text.c_str(), id, vocab_size);
    }
    dropped.push_back(text);
  }
  data->token_bytes.resize(begin_of(*data, vocab_size));
  data->token_ends.resize(vocab_size);
  if (data->kind == "unigram") data->scores.resize(vocab_size);
  size_t n = 0;
  for (size_t i = 0; i < data->added_ids.size(); ++i) {
    if (data->added_ids[i] >= vocab_size) continue;
    data->added_ids[n] = data->added_ids[i];
    data->added_flags[n++] = data->added_flags[i];
  }
  data->added_ids.resize(n);
  data->added_flags.resize(n);
  if (data->pad_id >= static_cast<int32_t>(vocab_size)) data->pad_id = -1;
  return dropped;
}

}  // namespace moe
