// SPDX-License-Identifier: MIT
// Converts the tokenizer of a GGUF file to a tokenizer.json.

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "formats/import/failure.h"
#include "src/base/number.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/gguf/gguf_wordpiece.h"
#include "src/convert/gguf/score_merges.h"
#include "src/convert/tokenizer/tiktoken.h"
#include "src/convert/tokenizer/tokenizer_config.h"

namespace moe {
namespace {

// The way out of a tokenizer that cannot be read.
constexpr const char* kWithout =
    "; moe convert --ignore-key tokenizer.ggml.model converts without the tokenizer";
constexpr const char* kBert = "bert";

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

constexpr const char* kLlama3[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr const char* kQwen2[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// With the marks of a letter.
constexpr const char* kQwen35[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
#define MOE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define MOE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define MOE_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
constexpr const char* kO200k[] = {
    R"([^\r\n\p{L}\p{N}]?)" MOE_UPPER "*" MOE_LOWER "+" MOE_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?)" MOE_UPPER "+" MOE_LOWER "*" MOE_CONTRACTION
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr const char* kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};

// Its letters are the enumerated cased ones.
constexpr const char* kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ)"
    R"(ᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ί)"
    R"(ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ)"
    R"(Ꞌ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", R"([一-龥ࠀ-一가-퟿]+)"};

constexpr const char* kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?)" MOE_UPPER "*" MOE_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" MOE_UPPER
    "+" MOE_LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

constexpr const char* kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                          R"([一-龥ࠀ-一가-퟿]+)"};

constexpr const char* kDeepseekV3[] = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    (R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
     R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")};

// As kO200k, with Chinese characters apart. Its tokenizer, tiktoken, looks words up first.
constexpr const char* kKimi[] = {kKimiPattern};

// Pre-tokenization by tokenizer.ggml.pre.
struct Pre {
  const char* name;
  std::span<const char* const> regexes = {};  // in sequence; none: GPT-2's
  bool digits = false;                        // splits digits individually
  bool nfc = false;                           // the original tokenizer normalises
  bool ignore_merges = false;                 // a word that is a token is not merged
  bool adds_bos = false;                      // if no key says so
};
constexpr Pre kPres[] = {
    {.name = "gpt-2"},
    {.name = "olmo"},
    {.name = "llama-bpe", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "lfm2", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "pixtral", .regexes = kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "glm4", .regexes = kLlama3, .ignore_merges = true},
    {.name = "tekken", .regexes = kTekken, .ignore_merges = true, .adds_bos = true},
    {.name = "dbrx", .regexes = kLlama3},
    {.name = "smaug-bpe", .regexes = kLlama3},
    {.name = "qwen2", .regexes = kQwen2, .nfc = true},
    {.name = "deepseek-r1-qwen", .regexes = kQwen2, .nfc = true},
    {.name = "qwen35", .regexes = kQwen35, .nfc = true},
    {.name = "gpt-4o", .regexes = kO200k},
    {.name = "minimax-m2", .regexes = kO200k},
    {.name = "deepseek-llm", .regexes = kDeepseekLlm, .digits = true},
    {.name = "deepseek-coder", .regexes = kDeepseekCoder, .digits = true},
    {.name = "deepseek-v3", .regexes = kDeepseekV3},
    {.name = "kimi-k2", .regexes = kKimi, .ignore_merges = true},
    {.name = "bailingmoe", .regexes = kBailing},
    {.name = "bailingmoe2", .regexes = kBailing},
    {.name = "llada-moe", .regexes = kBailing},
    {.name = "starcoder", .digits = true},
    {.name = "refact", .digits = true},
    {.name = "smollm", .digits = true},
};

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

const Pre& find_pre(const JsonNode& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.pre";
  std::string known;
  for (const Pre& pre : kPres) known += (known.empty() ? "" : ", ") + std::string(pre.name);
  if (!metadata.has(kKey)) {
    fail(MOE_ERR_UNSUPPORTED,
         "%s: %s is missing; gguf-new-metadata --pre-tokenizer NAME OLD NEW (pip install gguf) "
         "adds it; known: %s",
         metadata.path().c_str(), kKey, known.c_str());
  }
  const std::string name = metadata.at(kKey).string();
  for (const Pre& pre : kPres) {
    if (name == pre.name) return pre;
  }
  fail(MOE_ERR_UNSUPPORTED, "%s: %s \"%.60s\" is not known%s. Known: %s", metadata.path().c_str(),
       kKey, name.c_str(), kWithout, known.c_str());
}

Json pre_tokenizer(const Pre& pre) {
  Json steps = Json::array();
  for (const char* regex : pre.regexes) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", regex}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  if (pre.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back(byte_level(pre.regexes.empty()));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// A file does not say which tokens strip the whitespace after them. In Phi-3 all special ones do
// but these; llama.cpp goes by the model's name.
constexpr const char* kNotStripping[] = {"<unk>", "<s>", "<|endoftext|>"};

bool strips(const std::string& token) {
  return std::find(std::begin(kNotStripping), std::end(kNotStripping), token) ==
         std::end(kNotStripping);
}

bool is_phi3(const JsonNode& metadata) {
  std::string name = metadata.string("general.name", "");
  for (char& c : name) c = ascii_lower(c);
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

class TokenizerBuilder {
 public:
  TokenizerBuilder(const JsonNode& metadata, const std::function<void()>& step,
                   const std::function<void(const std::string&)>& warn)
      : metadata_(metadata), step_(step), warn_(warn) {
    for (const JsonNode& t : metadata.at("tokenizer.ggml.tokens").elements()) {
      tokens_.push_back(t.string());
    }
    types_.assign(tokens_.size(), kNormal);
    if (!metadata.has("tokenizer.ggml.token_type")) return;
    const std::vector<JsonNode> types = metadata.at("tokenizer.ggml.token_type").elements();
    check_length(types.size(), "token_type");
    size_t n_odd = 0;
    for (size_t i = 0; i < types.size(); ++i) {
      types_[i] = types[i].integer(INT32_MIN, INT32_MAX);
      if (types_[i] >= kNormal && types_[i] <= kByte) continue;
      n_odd += types_[i] == 0 ? 0U : 1U;  // 0: not defined
      types_[i] = kNormal;
    }
    if (n_odd > 0) {
      warn_(metadata_.path() + ": " + std::to_string(n_odd) +
            " values of tokenizer.ggml.token_type are not known; their tokens are read as normal");
    }
  }

  Json build() {
    const std::string kind = metadata_.at("tokenizer.ggml.model").string();
    if (kind == kBert) {
      for (size_t i = 0; i < tokens_.size(); ++i) {
        tokens_[i] = wordpiece_text(tokens_[i], is_special(i));
      }
    }
    find_roles();
    Json out = {{"version", "1.0"}};
    if (kind == "gpt2") {
      build_byte_level(&out);
    } else if (kind == "llama" || kind == "gemma4") {
      build_sentencepiece(kind == "gemma4", &out);
    } else if (kind == kBert) {
      build_wordpiece(&out);
    } else {
      fail(MOE_ERR_UNSUPPORTED,
           "%s: tokenizer.ggml.model \"%.60s\"; gpt2, llama, gemma4 and bert are read%s",
           metadata_.path().c_str(), kind.c_str(), kWithout);
    }
    out["added_tokens"] = added_tokens();
    return out;
  }

 private:
  void check_length(size_t n, const char* what) const {
    if (n == tokens_.size()) return;
    fail(MOE_ERR_FORMAT, "%s: tokenizer.ggml.%s has %zu entries, there are %zu tokens%s",
         metadata_.path().c_str(), what, n, tokens_.size(), kWithout);
  }

  // Padding up to a round number and an empty text are no tokens.
  bool is_token(size_t i) const { return types_[i] != kUnused && !tokens_[i].empty(); }
  bool is_special(size_t i) const { return types_[i] == kControl || types_[i] == kUnknown; }

  double score(size_t i) const {
    const Json* const scores = metadata_.value().find("tokenizer.ggml.scores");
    if (scores == nullptr || !scores->is_array() || i >= scores->size()) return 0;
    const Json& value = (*scores)[i];
    return value.is_number() ? value.get<double>() : 0;
  }

  // If tokens have the same text, the one with the best score, then the first, encodes it. Beside
  // it a user-defined one, or else a special one, is found in a text. The others only decode.
  void find_roles() {
    roles_.assign(tokens_.size(), kEncodes);
    std::map<std::string_view, size_t> models, defined, specials;
    size_t n_same = 0, last = 0;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!is_token(i)) continue;
      auto& kind = is_special(i) ? specials : types_[i] == kUserDefined ? defined : models;
      const auto [found, fresh] = kind.emplace(tokens_[i], i);
      if (fresh) continue;
      ++n_same;
      last = i;
      const bool better = !is_special(i) && score(i) > score(found->second);
      roles_[better ? found->second : i] = kDecodes;
      if (better) found->second = i;
    }
    const auto beside = [&](size_t i, Role role) {
      ++n_same;
      last = i;
      roles_[i] = role;
    };
    for (const auto& [text, i] : defined) {
      if (models.contains(text)) beside(i, kSearched);
    }
    for (const auto& [text, i] : specials) {
      if (defined.contains(text)) {
        beside(i, kDecodes);
      } else if (models.contains(text)) {
        beside(i, kSearched);
      }
    }
    if (n_same == 0) return;
    warn_(metadata_.path() + ": tokenizer.ggml.tokens has " + std::to_string(n_same) +
          (n_same == 1 ? " token with the text of another, which encodes it; it is decoded"
                       : " tokens with the text of another, which encodes it; they are decoded") +
          " (\"" + tokens_[last].substr(0, 60) + "\", id " + std::to_string(last) + ")");
  }

  Json vocabulary() const {
    Json vocab = Json::object();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (i % 4096 == 0) step_();
      if (is_token(i) && roles_[i] == kEncodes) vocab.items().emplace(tokens_[i], i);
    }
    return vocab;
  }

  Json added_tokens() const {
    Json out = Json::array();
    const bool phi3 = is_phi3(metadata_);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool added = is_special(i) || types_[i] == kUserDefined || roles_[i] == kDecodes;
      if (!added || !is_token(i)) continue;
      Json token = {{"id", i},
                    {"content", tokens_[i]},
                    {"special", is_special(i)},
                    {"lstrip", false},
                    {"rstrip", phi3 && strips(tokens_[i])},
                    {"single_word", false},
                    {"normalized", false}};
      if (roles_[i] != kEncodes)
        token["same_text"] = roles_[i] == kDecodes ? "decoded" : "searched";
      out.push_back(std::move(token));
    }
    return out;
  }

  // The ids before and after a text: BOS and EOS if the keys say so.
  void add_around(bool adds_bos, Json* out) const {
    const auto ids = [&](const char* wanted, bool fallback, const char* key) -> NamedIds {
      if (!metadata_.boolean(wanted, fallback) || !metadata_.has(key)) return {};
      const auto id = static_cast<size_t>(
          metadata_.at(key).integer(0, static_cast<int64_t>(tokens_.size()) - 1));
      return {{tokens_[id], id}};
    };
    const NamedIds before =
        ids("tokenizer.ggml.add_bos_token", adds_bos, "tokenizer.ggml.bos_token_id");
    const NamedIds after =
        ids("tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id");
    Json added = surround(before, after);
    if (!added.is_null()) (*out)["post_processor"] = std::move(added);
  }

  // The token whose id one of `keys` has, or else the one called `name`.
  NamedIds role(std::initializer_list<const char*> keys, const std::string& name) const {
    for (const char* key : keys) {
      if (!metadata_.has(key)) continue;
      const auto id = static_cast<size_t>(
          metadata_.at(key).integer(0, static_cast<int64_t>(tokens_.size()) - 1));
      return {{tokens_[id], id}};
    }
    const auto found = std::find(tokens_.begin(), tokens_.end(), name);
    if (found == tokens_.end()) return {};
    return {{name, static_cast<uint64_t>(found - tokens_.begin())}};
  }

  void build_wordpiece(Json* out) const {
    const NamedIds unknown = role({"tokenizer.ggml.unknown_token_id"}, "[UNK]");
    if (unknown.empty()) {
      fail(MOE_ERR_FORMAT, "%s: tokenizer.ggml.tokens has no [UNK], and no key names one%s",
           metadata_.path().c_str(), kWithout);
    }
    put_wordpiece(tokens_, vocabulary(), unknown[0].first, out);
    // llama.cpp's "bos" is what BERT calls "cls".
    Json around = surround(
        role({"tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"}, "[CLS]"),
        role({"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id"}, "[SEP]"));
    if (!around.is_null()) (*out)["post_processor"] = std::move(around);
  }

  void build_byte_level(Json* out) const {
    const Pre& pre = find_pre(metadata_);
    (*out)["model"] = {{"type", "BPE"},
                       {"vocab", vocabulary()},
                       {"merges", merges()},
                       {"ignore_merges", pre.ignore_merges}};
    (*out)["pre_tokenizer"] = pre_tokenizer(pre);
    if (pre.nfc) (*out)["normalizer"] = {{"type", "NFC"}};
    (*out)["decoder"] = byte_level(true);
    add_around(pre.adds_bos, out);
  }

  // Those that name no tokens are left out: what a merge to none would leave is not clear.
  Json merges() const {
    const JsonNode list = metadata_.at("tokenizer.ggml.merges");
    std::set<std::string_view> known;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (is_token(i) && roles_[i] == kEncodes) known.insert(tokens_[i]);
    }
    Json kept = Json::array();
    std::string odd;  // the first without tokens
    size_t i = 0;
    for (const JsonNode& merge : list.elements()) {
      if (++i % 4096 == 0) step_();
      const std::string text = merge.string();
      const size_t space = text.find(' ', 1);
      const std::string left = text.substr(0, space);
      const std::string right = space == std::string::npos ? "" : text.substr(space + 1);
      const bool whole =
          known.contains(left) && known.contains(right) && known.contains(left + right);
      if (whole) kept.push_back(merge.value());
      if (!whole && odd.empty()) odd = "[" + std::to_string(i - 1) + "], \"" + text + "\"";
    }
    const size_t n_odd = i - kept.size();
    if (n_odd == 0) return kept;
    warn_(metadata_.path() + ": tokenizer.ggml.merges has " + std::to_string(n_odd) +
          (n_odd == 1 ? " merge of texts that are no tokens; it is"
                      : " merges of texts that are no tokens; they are") +
          " left out (" + odd.substr(0, 80) + ")");
    return kept;
  }

  // Pairs in SentencePiece's merge order: best score of the result first.
  Json merges_by_score() const {
    if (!metadata_.has("tokenizer.ggml.scores")) {
      if (metadata_.has("tokenizer.ggml.merges")) return merges();
      fail(MOE_ERR_UNSUPPORTED, "%s: tokenizer.ggml.scores is missing, so merges have no order%s",
           metadata_.path().c_str(), kWithout);
    }
    const std::vector<JsonNode> scores = metadata_.at("tokenizer.ggml.scores").elements();
    check_length(scores.size(), "scores");
    std::vector<ScoredToken> tokens(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool normal = types_[i] == kNormal && roles_[i] == kEncodes && is_token(i);
      tokens[i] = {tokens_[i], normal || (types_[i] == kByte && roles_[i] == kEncodes), normal};
    }
    const auto number = [&](size_t i) { return scores[i].number(); };
    const std::vector<TokenMerge> merges = merges_of_scores(tokens, number, step_);
    if (merges.size() > 1 && merges.front().score == merges.back().score) {
      fail(MOE_ERR_UNSUPPORTED,
           "%s: tokenizer.ggml.scores are all equal, so merges have no order%s",
           metadata_.path().c_str(), kWithout);
    }
    Json out = Json::array();
    for (const TokenMerge& m : merges) out.push_back({tokens_[m.left], tokens_[m.right]});
    return out;
  }

  // The scores of Gemma 4's tokens say nothing; its merges are listed.
  void build_sentencepiece(bool listed, Json* out) const {
    Json model = {{"type", "BPE"},
                  {"vocab", vocabulary()},
                  {"merges", listed ? merges() : merges_by_score()},
                  {"byte_fallback", true},
                  {"fuse_unk", true}};
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] == kUnknown) model["unk_token"] = tokens_[i];
    }
    (*out)["model"] = std::move(model);
    const bool prefix = metadata_.boolean("tokenizer.ggml.add_space_prefix", true);
    Json normalizers = Json::array();
    if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", "▁"}});
    normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}});
    (*out)["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    Json decoders = Json::array();
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}});
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    (*out)["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    add_around(true, out);
  }

  enum Role : uint8_t { kEncodes, kSearched, kDecodes };

  const JsonNode& metadata_;
  const std::function<void()>& step_;
  const std::function<void(const std::string&)>& warn_;
  std::vector<std::string> tokens_;
  std::vector<Role> roles_;
  std::vector<int64_t> types_;
};

}  // namespace

Json gguf_tokenizer(const Json& metadata, const std::function<void()>& step,
                    const std::string& path, const std::function<void(const std::string&)>& warn) {
  const JsonNode node(metadata, path);
  if (!node.has("tokenizer.ggml.model") || node.at("tokenizer.ggml.model").value() == "none") {
    return nullptr;
  }
  return TokenizerBuilder(node, step, warn).build();
}

}  // namespace moe
