// SPDX-License-Identifier: MIT
// Decodes the lines, checks that ranks are complete, and writes the vocabulary as a tokenizer.json
// with merges.
#include "src/convert/tokenizer/tiktoken.h"

#include <charconv>
#include <map>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "src/convert/gguf/score_merges.h"
#include "src/convert/tokenizer/special_tokens.h"
#include "src/text/characters/byte_level.h"
#include "src/text/characters/utf8.h"

namespace moe {

namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kKimiClass = "TikTokenTokenizer";
constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxTokens = uint64_t{1} << 22;
constexpr uint64_t kReserved = 256;  // ids for special tokens behind the vocabulary

[[noreturn]] void fail_line(const std::string& path, size_t line, const char* expected) {
  fail(MOE_ERR_FORMAT, "%s: line %zu: expected %s", path.c_str(), line, expected);
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// The bytes of base64 as the letters that stand for them in a byte-level vocabulary; empty if it is
// none.
std::string letters_of(std::string_view base64) {
  while (base64.ends_with('=')) base64.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int n = 0;
  for (const char c : base64) {
    const int digit = base64_digit(c);
    if (digit < 0) return "";
    bits = (bits << 6 | static_cast<uint32_t>(digit)) & 0xFFFFFF;
    n += 6;
    if (n < 8) continue;
    n -= 8;
    char letter[4];
    const auto byte = static_cast<uint8_t>(bits >> n);
    out.append(letter, utf8_write(byte_to_character(byte), letter));
  }
  return out;
}

// Tokens by rank. All ranks from 0 on must be there.
std::vector<std::string> read_ranks(const std::string& path) {
  const std::string all = read_text_file(path, kMaxFileBytes);
  std::map<uint64_t, std::string> by_rank;
  size_t line = 0;
  for (size_t begin = 0; begin < all.size();) {
    ++line;
    const size_t end = std::min(all.find('\n', begin), all.size());
    std::string_view text(all.data() + begin, end - begin);
    begin = end + 1;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) continue;
    const size_t space = text.find(' ');
    std::string token = letters_of(text.substr(0, space));
    if (token.empty() || space == std::string_view::npos) {
      fail_line(path, line, "a token in base64, a space and its rank");
    }
    uint64_t rank = 0;
    const char* const last = text.data() + text.size();
    const auto read = std::from_chars(text.data() + space + 1, last, rank);
    if (read.ec != std::errc() || read.ptr != last || rank >= kMaxTokens) {
      fail_line(path, line, "a rank");
    }
    if (!by_rank.emplace(rank, std::move(token)).second) fail_line(path, line, "a rank of its own");
  }
  std::vector<std::string> tokens;
  for (auto& [rank, token] : by_rank) {
    if (rank != tokens.size()) {
      fail(MOE_ERR_FORMAT, "%s: no token has rank %zu", path.c_str(), tokens.size());
    }
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) fail(MOE_ERR_FORMAT, "%s: no tokens", path.c_str());
  return tokens;
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", false}};
}

// Special tokens have the ids behind the vocabulary; those without a name are reserved.
Json special_tokens(const Json& config, uint64_t n_tokens) {
  const JsonNode node(config, kConfig);
  std::map<uint64_t, Json> named;
  if (node.has("added_tokens_decoder")) named = tokens_by_id(node.at("added_tokens_decoder"));
  Json out = Json::array();
  for (uint64_t id = n_tokens; id < n_tokens + kReserved; ++id) {
    const auto name = named.find(id);
    out.push_back({{"id", id},
                   {"content", name == named.end() ? "<|reserved_token_" + std::to_string(id) + "|>"
                                                   : name->second.at("content").text()},
                   {"special", true},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"single_word", false},
                   {"normalized", false}});
  }
  return out;
}

// tiktoken joins the pair whose union has the lowest rank: every way to cut a token in two is a
// merge of that rank.
Json model_of(const std::vector<std::string>& tokens, const std::function<void()>& step) {
  Json vocab = Json::object();
  std::vector<ScoredToken> parts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!vocab.items().emplace(tokens[i], i).second) {
      fail(MOE_ERR_FORMAT, "%s: the tokens of rank %zu and an earlier one are the same",
           kTiktokenFile, i);
    }
    parts.push_back({.text = tokens[i], .part = true, .whole = true});
  }
  const auto score = [](size_t i) { return -static_cast<double>(i); };
  Json merges = Json::array();
  for (const TokenMerge& m : merges_of_scores(parts, score, step)) {
    merges.push_back({tokens[m.left], tokens[m.right]});
  }
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"ignore_merges", true}};
}

}  // namespace

Json tiktoken_tokenizer(const Checkpoint& checkpoint, const std::function<void()>& step) {
  const std::string path = checkpoint.path() + "/" + kTiktokenFile;
  if (!path_exists(path) || !checkpoint.has_document(kConfig)) return nullptr;
  const Json config = checkpoint.document(kConfig);
  const Json* const kind = config.is_object() ? config.find("tokenizer_class") : nullptr;
  if (kind == nullptr || *kind != kKimiClass) return nullptr;
  const std::vector<std::string> tokens = read_ranks(path);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kKimiPattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"version", "1.0"},
          {"added_tokens", special_tokens(config, tokens.size())},
          {"pre_tokenizer",
           {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}}},
          {"decoder", byte_level()},
          {"model", model_of(tokens, step)}};
}

}  // namespace moe
