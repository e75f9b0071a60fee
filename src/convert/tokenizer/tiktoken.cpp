// SPDX-License-Identifier: MIT
// Decodes the lines, checks that ranks are complete, and writes the vocabulary as a tokenizer.json
// with merges.
#include "src/convert/tokenizer/tiktoken.h"

#include <charconv>
#include <map>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "src/base/number.h"
#include "src/convert/gguf/score_merges.h"
#include "src/convert/tokenizer/special_tokens.h"
#include "src/text/characters/byte_level.h"
#include "src/text/characters/utf8.h"

namespace moe {

namespace {

constexpr const char* kConfig = "tokenizer_config.json";
constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxTokens = uint64_t{1} << 22;
constexpr uint64_t kReserved = 256;  // Kimi's ids for special tokens
constexpr uint64_t kQwenExtras = 205;
constexpr const char* kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A class of tokenizers, and what its code adds to the vocabulary: special tokens have the ids
// behind it.
struct Kind {
  const char* name;
  const char* file;
  const char* pattern;
  bool nfc;  // texts are normalised first
  std::vector<std::string> (*special)(const Json& config, uint64_t n_tokens);
};

[[noreturn]] void fail_line(const std::string& path, size_t line, const char* expected) {
  fail(MOE_ERR_FORMAT, "%s: line %zu: expected %s", path.c_str(), line, expected);
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (is_digit(c)) return c - '0' + 52;
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

// Those that tokenizer_config.json names; others are reserved.
std::vector<std::string> kimi_special(const Json& config, uint64_t n_tokens) {
  const JsonNode node(config, kConfig);
  std::map<uint64_t, Json> named;
  if (node.has("added_tokens_decoder")) named = tokens_by_id(node.at("added_tokens_decoder"));
  std::vector<std::string> out;
  for (uint64_t id = n_tokens; id < n_tokens + kReserved; ++id) {
    const auto name = named.find(id);
    out.push_back(name == named.end() ? "<|reserved_token_" + std::to_string(id) + "|>"
                                      : name->second.at("content").text());
  }
  return out;
}

std::vector<std::string> qwen_special(const Json&, uint64_t) {
  std::vector<std::string> out = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (uint64_t i = 0; i < kQwenExtras; ++i) out.push_back("<|extra_" + std::to_string(i) + "|>");
  return out;
}

constexpr Kind kKinds[] = {
    {"TikTokenTokenizer", "tiktoken.model", kKimiPattern, false, kimi_special},
    {"QWenTokenizer", "qwen.tiktoken", kQwenPattern, true, qwen_special}};

const Kind* find_kind(const Json& config) {
  const Json* const name = config.is_object() ? config.find("tokenizer_class") : nullptr;
  if (name == nullptr) return nullptr;
  for (const Kind& kind : kKinds) {
    if (*name == kind.name) return &kind;
  }
  return nullptr;
}

Json added_tokens(const std::vector<std::string>& special, uint64_t first_id) {
  Json out = Json::array();
  for (const std::string& content : special) {
    out.push_back({{"id", first_id + out.size()},
                   {"content", content},
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
Json model_of(const std::vector<std::string>& tokens, const char* file,
              const std::function<void()>& step) {
  Json vocab = Json::object();
  std::vector<ScoredToken> parts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!vocab.items().emplace(tokens[i], i).second) {
      fail(MOE_ERR_FORMAT, "%s: the tokens of rank %zu and an earlier one are the same", file, i);
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

void read_tiktoken(Checkpoint* checkpoint, const std::function<void()>& step) {
  if (!checkpoint->has_document(kConfig)) return;
  Json config = checkpoint->document(kConfig);
  const Kind* const kind = find_kind(config);
  if (kind == nullptr) return;
  const std::string path = checkpoint->path() + "/" + kind->file;
  if (!path_exists(path)) return;
  const std::vector<std::string> tokens = read_ranks(path);
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kind->pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  Json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", added_tokens(kind->special(config, tokens.size()), tokens.size())},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}}},
      {"decoder", byte_level()},
      {"model", model_of(tokens, kind->file, step)}};
  if (kind->nfc) tokenizer["normalizer"] = {{"type", "NFC"}};
  checkpoint->put_document("tokenizer.json", std::move(tokenizer));
  config.erase("auto_map");  // the class's code, which does as the above
  checkpoint->put_document(kConfig, std::move(config));
}

}  // namespace moe
