// SPDX-License-Identifier: MIT
// Reads the lines and builds the tokenizer.json that Bert's class would.
#include "src/convert/tokenizer/vocab_txt.h"

#include <sstream>

#include "formats/import/failure.h"
#include "src/convert/tokenizer/tokenizer_config.h"

namespace moe {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

// Ids are the numbers of lines. Of equal lines the last counts; an empty one is an id without
// token.
Json read_vocabulary(const Checkpoint& checkpoint) {
  std::istringstream in(read_text_file(checkpoint.path() + "/" + kVocabTxt, kMaxBytes));
  Json vocabulary = Json::object();
  uint64_t id = 0;
  for (std::string line; std::getline(in, line); ++id) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) vocabulary[line] = id;
  }
  return vocabulary;
}

Json tokenizer_config(const Checkpoint& checkpoint) {
  constexpr const char* kName = "tokenizer_config.json";
  Json config = checkpoint.has_document(kName) ? checkpoint.document(kName) : Json::object();
  if (!config.is_object()) JsonNode(config, kName).fail_expected("an object");
  return config;
}

struct SpecialToken {
  const char* key;
  const char* name;  // if the key is missing
};
constexpr SpecialToken kPad = {"pad_token", "[PAD]"}, kUnk = {"unk_token", "[UNK]"},
                       kCls = {"cls_token", "[CLS]"}, kSep = {"sep_token", "[SEP]"},
                       kMask = {"mask_token", "[MASK]"};

// Empty where the key is null: there is no such token.
std::string name_of(const JsonNode& config, const SpecialToken& token) {
  return config.value().contains(token.key) ? token_name(config, token.key) : token.name;
}

NamedIds id_of(const Json& vocabulary, const std::string& name) {
  const Json* const id = vocabulary.find(name);
  if (id == nullptr) return {};
  return {{name, id->get<uint64_t>()}};
}

Json added_tokens(const JsonNode& config, const Json& vocabulary) {
  Json added = Json::array();
  for (const SpecialToken& token : {kPad, kUnk, kCls, kSep, kMask}) {
    for (const auto& [name, id] : id_of(vocabulary, name_of(config, token))) {
      added.push_back({{"id", id},
                       {"content", name},
                       {"special", true},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"single_word", false},
                       {"normalized", false}});
    }
  }
  return added;
}

Json normalizer(const JsonNode& config) {
  Json out = {{"type", "BertNormalizer"},
              {"clean_text", true},
              {"handle_chinese_chars", config.boolean("tokenize_chinese_chars", true)},
              {"lowercase", config.boolean("do_lower_case", true)}};
  if (config.has("strip_accents")) out["strip_accents"] = config.at("strip_accents").boolean();
  return out;
}

// [CLS] A [SEP] for one text, [CLS] A [SEP] B [SEP] for two.
Json post_processor(const NamedIds& first, const NamedIds& last) {
  Json out = surround(first, last);
  if (out.is_null()) return out;
  Json pair = Json::array();
  const auto add = [&pair](const char* kind, const std::string& id, int type) {
    pair.push_back({{kind, {{"id", id}, {"type_id", type}}}});
  };
  for (const auto& [name, id] : first) add("SpecialToken", name, 0);
  add("Sequence", "A", 0);
  for (const auto& [name, id] : last) add("SpecialToken", name, 0);
  add("Sequence", "B", 1);
  for (const auto& [name, id] : last) add("SpecialToken", name, 1);
  out["pair"] = std::move(pair);
  return out;
}

}  // namespace

bool has_only_vocab_txt(const Checkpoint& checkpoint) {
  return !checkpoint.has_document("tokenizer.json") && checkpoint.has_document(kVocabTxt);
}

Json default_special_tokens(const Json& config) {
  Json out = Json::object();
  for (const SpecialToken& token : {kPad, kUnk, kCls, kSep, kMask}) {
    if (!config.contains(token.key)) out[token.key] = token.name;
  }
  return out;
}

Json tokenizer_of_vocab_txt(const Checkpoint& checkpoint) {
  const Json document = tokenizer_config(checkpoint);
  const JsonNode config(document, "tokenizer_config.json");
  const std::string type = config.string("tokenizer_class", "BertTokenizer");
  if (type != "BertTokenizer" && type != "BertTokenizerFast") {
    fail(MOE_ERR_UNSUPPORTED,
         "%s: the tokenizer, a %.60s, is there as vocab.txt only; tokenizer.json is read. In that "
         "folder run: python -c \"from transformers import AutoTokenizer as A; "
         "A.from_pretrained('.').save_pretrained('.')\"",
         checkpoint.path().c_str(), type.c_str());
  }
  if (!config.boolean("do_basic_tokenize", true)) {
    fail(MOE_ERR_UNSUPPORTED,
         "tokenizer_config.json: do_basic_tokenize: false is not supported; words are split at "
         "spaces and punctuation");
  }
  const Json vocabulary = read_vocabulary(checkpoint);
  const NamedIds first = id_of(vocabulary, name_of(config, kCls));
  const NamedIds last = id_of(vocabulary, name_of(config, kSep));
  const std::string unknown = name_of(config, kUnk);  // the model cannot do without
  return {{"version", "1.0"},
          {"added_tokens", added_tokens(config, vocabulary)},
          {"normalizer", normalizer(config)},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", post_processor(first, last)},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", unknown.empty() ? kUnk.name : unknown},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocabulary}}}};
}

}  // namespace moe
