// SPDX-License-Identifier: MIT
// tokenizer_config.json and the other files beside tokenizer.json, with ids and warnings. The ids
// are those of `transformers` 5.24, except where a comment says why they are not.
#include "src/convert/tokenizer/tokenizer_config.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

using Lines = std::vector<std::string>;

Json added(const std::string& text, int id, bool special = true) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

Json model_of(const Lines& pieces, const Json& merges, bool bytes) {
  Json vocab = Json::object();
  for (size_t i = 0; i < pieces.size(); ++i) vocab[pieces[i]] = i;
  return {{"type", "BPE"},
          {"merges", merges},
          {"vocab", vocab},
          {"byte_fallback", bytes},
          {"ignore_merges", false}};
}

Json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json legacy_normalizer() {
  return {{"type", "Sequence"},
          {"normalizers",
           Json::array({Json{{"type", "Prepend"}, {"prepend", "▁"}}, replace(" ", "▁")})}};
}

Json metaspace(const char* scheme) {
  return {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
}

// <s> 0, </s> 1, ▁ 2, a 3, b 4, ▁a 5, ab 6, ▁ab 7, <x> 8
Json pieces(const Json& normalizer, const Json& pre_tokenizer) {
  const Json decoders =
      Json::array({replace("▁", " "), Json{{"type", "Fuse"}},
                   Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}});
  return {{"added_tokens", Json::array({added("<s>", 0), added("</s>", 1), added("<x>", 8)})},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model", model_of({"<s>", "</s>", "▁", "a", "b", "▁a", "ab", "▁ab"},
                             Json::array({"▁ a", "a b", "▁ ab", "▁a b"}), true)}};
}

// a 0, b 1, Ġ 2, ab 3, Ġab 4, 1 5, 2 6, 12 7, <s> 8, </s> 9
Json byte_level(const Json& pre_tokenizer) {
  return {{"added_tokens", Json::array({added("<s>", 8), added("</s>", 9)})},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", model_of({"a", "b", "Ġ", "ab", "Ġab", "1", "2", "12"},
                             Json::array({"a b", "Ġ ab", "1 2"}), false)}};
}

Json bytes_step(bool prefix, bool regex = true) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", regex}};
}

Json sequence(const Json& first, const Json& second) {
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({first, second})}};
}

struct Result {
  IdList ids;
  Lines warnings;

  std::string all() const {
    std::string out;
    for (const std::string& text : warnings) out += text + "\n";
    return out;
  }
  bool warns(const char* text) const { return all().find(text) != std::string::npos; }
};

Result run(TokenizerFiles files, const char* text) {
  CompletedTokenizer done = complete_tokenizer(std::move(files));
  const TokenizerData data = parse_tokenizer(done.tokenizer, "t.json");
  compare_around(data.prefix, data.suffix, &done);
  const auto loaded = load(data);
  EXPECT_TRUE(loaded->status.ok()) << loaded->status.text();
  return {encode(*loaded->tokenizer, text, true), done.warnings};
}

Result run(const Json& tokenizer, const Json& config, const char* text,
           const Json& model = nullptr) {
  return run({.tokenizer = tokenizer, .config = config, .model = model}, text);
}

Json llama(const Json& keys = Json::object()) {
  Json out = {{"tokenizer_class", "LlamaTokenizer"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
  for (const auto& [key, value] : keys.items()) out[key] = value;
  return out;
}

TEST(TokenizerConfig, LlamaWithoutAPrefixSpace) {
  const Json never = llama({{"add_prefix_space", false}});
  const IdList right = {6, 7};
  for (const Json& file :
       {pieces(legacy_normalizer(), nullptr), pieces(nullptr, metaspace("first")),
        pieces(nullptr, metaspace("always"))}) {
    const Result r = run(file, never, "ab ab");
    EXPECT_EQ(r.ids, right) << file.dump();
    EXPECT_TRUE(r.warns("add_prefix_space false overrides")) << r.all();
    EXPECT_EQ(r.warnings.size(), 1u) << r.all();
  }
  const Result same = run(pieces(nullptr, metaspace("never")), never, "ab ab");
  EXPECT_EQ(same.ids, right);
  EXPECT_EQ(same.warnings, Lines{});
}

TEST(TokenizerConfig, WithoutAPrefixSpaceNoneIsStrippedFromTheText) {
  const Json config = llama({{"add_prefix_space", false}});
  const Json file = pieces(legacy_normalizer(), nullptr);
  const auto text_of = [&](const Json& keys) {
    CompletedTokenizer done = complete_tokenizer({.tokenizer = file, .config = keys});
    return decode(*load(parse_tokenizer(done.tokenizer, "t.json"))->tokenizer, {7, 7});
  };
  EXPECT_EQ(text_of(config), " ab ab");
  EXPECT_EQ(text_of(llama()), "ab ab");
}

TEST(TokenizerConfig, LlamaWithAPrefixSpace) {
  const Json never = pieces(nullptr, metaspace("never"));
  EXPECT_EQ(run(never, llama({{"add_prefix_space", true}}), "ab<x>ab").ids, (IdList{7, 8, 6}));
  EXPECT_EQ(run(never, llama({{"add_prefix_space", true}, {"legacy", true}}), "ab<x>ab").ids,
            (IdList{7, 8, 7}));
  const Json replaced = pieces(replace(" ", "▁"), nullptr);
  EXPECT_EQ(run(replaced, llama({{"add_prefix_space", true}}), "ab ab").ids, (IdList{7, 7}));
}

// The class of transformers 5 would give {7, 8, 6} for legacy false or absent; transformers 4 and
// llama.cpp put the space of tokenizer.json after a special token.
TEST(TokenizerConfig, LegacyLeavesTheFileAndWarns) {
  const Json file = pieces(legacy_normalizer(), nullptr);
  for (const Json& keys : {Json::object(), Json{{"legacy", false}}, Json{{"legacy", true}}}) {
    const Result r = run(file, llama(keys), "ab<x>ab");
    EXPECT_EQ(r.ids, (IdList{7, 8, 7}));
    EXPECT_EQ(r.warnings.size(), 1u) << r.all();
    const bool legacy = keys.contains("legacy") && keys.at("legacy") == Json(true);
    EXPECT_TRUE(r.warns(legacy ? "legacy true" : "legacy false")) << r.all();
    EXPECT_TRUE(r.warns("normalizer, pre_tokenizer")) << r.all();
  }
  const Json first = pieces(nullptr, metaspace("first"));
  EXPECT_EQ(run(first, llama({{"legacy", false}}), "ab<x>ab").warnings, Lines{});
  EXPECT_TRUE(run(first, llama({{"legacy", true}}), "ab<x>ab").warns("legacy true"));
  EXPECT_EQ(run(first, llama({{"legacy", true}}), "ab<x>ab").ids, (IdList{7, 8, 6}));
  const Json always = pieces(nullptr, metaspace("always"));
  EXPECT_EQ(run(always, llama({{"legacy", true}}), "ab<x>ab").warnings, Lines{});
  EXPECT_TRUE(run(pieces(nullptr, metaspace("never")), llama(), "ab").warns("legacy false"));
}

TEST(TokenizerConfig, TheFileAsItStands) {
  const Json file = pieces(legacy_normalizer(), nullptr);
  const auto is_silent = [](const Result& r) { return r.warnings.empty(); };
  for (const char* type : {"mistral", "mixtral", "phi3", "phimoe", "ernie4_5_moe"}) {
    const Result r = run(file, llama({{"legacy", false}}), "ab<x>ab", {{"model_type", type}});
    EXPECT_EQ(r.ids, (IdList{7, 8, 7}));
    EXPECT_TRUE(is_silent(r)) << type << r.all();
  }
  Json config = llama({{"legacy", false}});
  for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend", "SomebodysTokenizer"}) {
    config["tokenizer_class"] = name;
    EXPECT_TRUE(is_silent(run(file, config, "ab"))) << name;
  }
  // A class that has no ByteLevel, in a file that has one: DeepSeek's.
  EXPECT_TRUE(is_silent(run(byte_level(bytes_step(false)), llama(), "ab")));
  config["add_prefix_space"] = false;
  const Result r = run(file, config, "ab");
  EXPECT_EQ(r.ids, IdList{7});
  EXPECT_TRUE(r.warns("add_prefix_space false is not obeyed")) << r.all();
}

TEST(TokenizerConfig, PrefixSpaceOfByteLevelClasses) {
  for (const char* name : {"GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizer",
                           "Qwen2Tokenizer", "RobertaTokenizer", "CodeGenTokenizer"}) {
    const auto ids = [&](bool file, const Json& key) {
      const Json config = {{"tokenizer_class", name}, {"add_prefix_space", key}};
      return run(byte_level(bytes_step(file)), config, "ab ab").ids;
    };
    EXPECT_EQ(ids(false, true), (IdList{4, 4})) << name;
    EXPECT_EQ(ids(true, true), (IdList{4, 4})) << name;
    EXPECT_EQ(ids(true, false), (IdList{3, 4})) << name;
    EXPECT_EQ(ids(true, nullptr), (IdList{3, 4})) << name;
  }
  const Json gpt2 = {{"tokenizer_class", "GPT2Tokenizer"}, {"bos_token", "<s>"}};
  EXPECT_TRUE(run(byte_level(bytes_step(true)), gpt2, "ab").warns("GPT2Tokenizer adds no space"));
  EXPECT_EQ(run(byte_level(bytes_step(false)), gpt2, "ab").warnings, Lines{});
  // The class of a model type, without any tokenizer_config.json.
  EXPECT_EQ(run(byte_level(bytes_step(true)), nullptr, "ab", {{"model_type", "olmoe"}}).ids,
            IdList{3});
}

// The class of transformers 5 would lose the step that splits digits.
TEST(TokenizerConfig, StepsThatAClassLacksStay) {
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const Json file = byte_level(sequence(digits, bytes_step(false)));
  const Result r = run(file, {{"tokenizer_class", "GPT2Tokenizer"}}, "12");
  EXPECT_EQ(r.ids, (IdList{5, 6}));
  EXPECT_TRUE(
      r.warns("GPT2Tokenizer of transformers 5 has steps of its own in the place of "
              "pre_tokenizer"))
      << r.all();
  Json ignoring = byte_level(bytes_step(false));
  ignoring["model"]["ignore_merges"] = true;
  EXPECT_TRUE(run(ignoring, {{"tokenizer_class", "GPT2Tokenizer"}}, "12").warns("model;"));
  EXPECT_TRUE(run(file, {{"tokenizer_class", "WhisperTokenizer"}}, "12")
                  .warns("WhisperTokenizer of transformers 5 has steps of its own;"));
}

TEST(TokenizerConfig, TokensAroundATextOfClasses) {
  Json file = byte_level(bytes_step(false));
  Json config = {{"tokenizer_class", "RobertaTokenizer"}};
  EXPECT_TRUE(run(file, config, "ab").warns("other tokens around a text"));
  file["post_processor"] = surround({{"<s>", 8}}, {{"</s>", 9}});
  EXPECT_EQ(run(file, config, "ab").warnings, Lines{});
  config["tokenizer_class"] = "GPTNeoXTokenizer";
  const Result r = run(file, config, "ab");
  EXPECT_EQ(r.ids, (IdList{8, 3, 9}));
  EXPECT_TRUE(r.warns("other tokens around a text")) << r.all();
}

Json xlm_roberta(const Json& normalizer, const Json& pre_tokenizer) {
  const Json names = Json::array({"<s>", "<pad>", "</s>", "<unk>"});
  Json vocab = Json::array(), tokens = Json::array();
  for (const Json& name : names) {
    tokens.push_back(added(name.text(), static_cast<int>(vocab.size())));
    vocab.push_back(Json::array({name, 0.0}));
  }
  for (const char* piece : {"▁ab", "ab", "▁"}) vocab.push_back(Json::array({piece, -1.0}));
  return {{"added_tokens", tokens},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", surround({{"<s>", 0}}, {{"</s>", 2}})},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "▁"}}},
          {"model", {{"type", "Unigram"}, {"unk_id", 3}, {"vocab", vocab}}}};
}

TEST(TokenizerConfig, XlmRobertasSpaces) {
  const Json split = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  const Json file = xlm_roberta(nullptr, sequence({{"type", "WhitespaceSplit"}}, split));
  Json config = {{"tokenizer_class", "XLMRobertaTokenizer"}};
  EXPECT_EQ(run(file, config, "ab ab").ids, (IdList{0, 4, 4, 2}));
  EXPECT_EQ(run(file, config, "ab ab").warnings, Lines{});
  config["add_prefix_space"] = false;
  EXPECT_EQ(run(file, config, "ab ab").ids, (IdList{0, 5, 5, 2}));
  config["add_prefix_space"] = nullptr;  // false for the class
  EXPECT_TRUE(run(file, config, "ab").warns("XLMRobertaTokenizer of transformers 5 has steps"));
  config["clean_up_tokenization_spaces"] = true;
  EXPECT_TRUE(run(file, config, "ab").warns("clean_up_tokenization_spaces is not obeyed"));
}

TEST(TokenizerConfig, NewerFilesOfXlmRobertaAreTheSame) {
  // An empty charsmap: no replacements, in the form that the package accepts.
  const Json map = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAQAAAAAAAA="}};
  const Json runs = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "▁"}};
  const Json strip = {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}};
  const Json steps = {{"type", "Sequence"}, {"normalizers", Json::array({map, strip, runs})}};
  const Json whole = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  Json file = xlm_roberta(steps, whole);
  const Json config = {{"tokenizer_class", "XLMRobertaTokenizerFast"}};
  EXPECT_EQ(complete_tokenizer({.tokenizer = file, .config = config}).warnings, Lines{});
  // Unless a token is searched after some of them and before the others.
  file["added_tokens"][1]["normalized"] = true;
  EXPECT_EQ(complete_tokenizer({.tokenizer = file, .config = config}).warnings.size(), 1u);
}

TEST(TokenizerConfig, BertsNormalizer) {
  const auto lowercase = [](const Json& keys) {
    Json file = byte_level({{"type", "BertPreTokenizer"}});
    file["model"]["type"] = "WordPiece";
    file["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", true},
                          {"strip_accents", nullptr},
                          {"lowercase", true}};
    Json config = {{"tokenizer_class", "BertTokenizer"}};
    for (const auto& [key, value] : keys.items()) config[key] = value;
    const CompletedTokenizer done = complete_tokenizer({.tokenizer = file, .config = config});
    return std::pair(done.tokenizer.at("normalizer").at("lowercase").get<bool>(),
                     done.warnings.size());
  };
  EXPECT_EQ(lowercase(Json::object()), std::pair(true, size_t{0}));
  EXPECT_EQ(lowercase({{"do_lower_case", true}}), std::pair(true, size_t{0}));
  EXPECT_EQ(lowercase({{"do_lower_case", false}}), std::pair(false, size_t{1}));
  EXPECT_EQ(lowercase({{"strip_accents", false}}), std::pair(true, size_t{1}));
}

TEST(TokenizerConfig, KeysThatAreNotObeyed) {
  const auto warns = [](const Json& keys, const char* text) {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
    for (const auto& [key, value] : keys.items()) config[key] = value;
    const Result r = run(byte_level(bytes_step(false)), config, "ab");
    EXPECT_EQ(r.warnings.size(), 1u) << r.all();
    return r.warns(text);
  };
  EXPECT_TRUE(warns({{"split_special_tokens", true}}, "split_special_tokens is not obeyed"));
  EXPECT_TRUE(warns({{"fix_mistral_regex", true}}, "fix_mistral_regex"));
  EXPECT_TRUE(warns({{"do_lower_case", true}}, "do_lower_case"));
  EXPECT_TRUE(
      warns({{"auto_map", {{"AutoTokenizer", Json::array({"a.B", nullptr})}}}}, "auto_map"));
  EXPECT_TRUE(warns({{"some_key", 1}, {"other", false}, {"model_max_length", 5}},
                    "unknown keys are not obeyed: other, some_key\n"));
  EXPECT_TRUE(warns({{"bos_token", "<s>"}, {"add_bos_token", true}}, "add_bos_token true is not"));
  EXPECT_TRUE(warns({{"bos_token", "<none>"}}, "lacks the special token \"<none>\""));
  const Json harmless = {{"split_special_tokens", false},
                         {"padding_side", "left"},
                         {"clean_up_tokenization_spaces", true},
                         {"add_bos_token", false},
                         {"unknown", nullptr},
                         {"image_token", "<s>"}};
  EXPECT_EQ(run(byte_level(bytes_step(false)), harmless, "ab").warnings, Lines{});
}

TEST(TokenizerConfig, AFlagMustBeOne) {
  const Status status = guarded([] {
    run(byte_level(bytes_step(false)), {{"add_prefix_space", "no"}}, "ab");
  });
  EXPECT_STREQ(status.text(),
               "tokenizer_config.json: add_prefix_space: expected true or false, found \"no\"");
}

TEST(TokenizerConfig, SpecialTokensOfTheVocabularyAreFoundInTexts) {
  Json file = byte_level(bytes_step(false));
  file["added_tokens"] = Json::array();
  const auto ids = [&](const Json& config) { return run(file, config, "12ab").ids; };
  EXPECT_EQ(ids({{"eos_token", "2"}}), (IdList{5, 6, 3}));
  EXPECT_EQ(ids({{"some_token", "2"}}), (IdList{5, 6, 3}));
  EXPECT_EQ(ids({{"additional_special_tokens", Json::array({"2"})}}), (IdList{5, 6, 3}));
  EXPECT_EQ(ids({{"extra_special_tokens", {{"x", {{"content", "2"}}}}}}), (IdList{5, 6, 3}));
  EXPECT_EQ(ids(nullptr), (IdList{7, 3}));
}

TEST(TokenizerConfig, PropertiesOfAddedTokensDecoderCount) {
  const Json stripping = {{"content", "<s>"}, {"special", true}, {"rstrip", true}};
  const Json file = byte_level(bytes_step(false));
  const Json config = {{"added_tokens_decoder", {{"8", stripping}}}};
  EXPECT_EQ(run(file, config, "<s> ab").ids, (IdList{8, 3}));
  EXPECT_EQ(run(file, nullptr, "<s> ab").ids, (IdList{8, 4}));
  EXPECT_EQ(run(file, config, "ab").warnings, Lines{});
  Json lacking = config;
  lacking["tokenizer_class"] = "GPT2Tokenizer";
  EXPECT_TRUE(run(file, lacking, "ab").warns("added_tokens_decoder lacks \"</s>\""));
}

// The flags of `transformers` 5.24 for each place.
TEST(TokenizerConfig, PropertiesOfSpecialTokensCount) {
  Json file = byte_level(bytes_step(false));
  file["added_tokens"] = Json::array();
  const Json given = {{"content", "2"}, {"lstrip", true}};
  const auto flags = [&](const TokenizerFiles& files) {
    return parse_tokenizer(complete_tokenizer(files).tokenizer, "t.json").added_flags;
  };
  const auto of_config = [&](const Json& config) {
    return flags({.tokenizer = file, .config = config});
  };
  using Flags = std::vector<uint8_t>;
  const auto expect = [](const Flags& found, int wanted) {
    EXPECT_EQ(found, Flags{static_cast<uint8_t>(wanted | kAddedInModel)});
  };
  expect(of_config({{"eos_token", given}}), kAddedSpecial | kAddedLstrip);
  expect(of_config({{"extra_special_tokens", {{"x", given}}}}), kAddedSpecial | kAddedLstrip);
  Json all = given;
  for (const char* key : {"rstrip", "single_word", "normalized"}) all[key] = true;
  const int every =
      kAddedSpecial | kAddedLstrip | kAddedRstrip | kAddedSingleWord | kAddedNormalized;
  expect(of_config({{"eos_token", all}}), every);
  expect(flags({.tokenizer = file, .special_tokens_map = {{"eos_token", all}}}), every);
  expect(of_config({{"eos_token", "2"}}), kAddedSpecial);
  // Not those of a token that another place adds, nor in this class.
  expect(flags({.tokenizer = file, .config = {{"eos_token", given}}, .added_tokens = {{"2", 6}}}),
         kAddedSpecial);
  expect(of_config({{"eos_token", given}, {"tokenizer_class", "Qwen2Tokenizer"}}), kAddedSpecial);
  file["added_tokens"] = Json::array({added("2", 6)});
  expect(of_config({{"eos_token", given}}), kAddedSpecial);
  EXPECT_FALSE(guarded([&] {
                 file["added_tokens"] = Json::array();
                 of_config({{"eos_token", {{"content", "2"}, {"lstrip", 3}}}});
               }).ok());
}

// A folder's tokenizer.json has no tokens of one text.
TEST(TokenizerConfig, TheKeyOfGgufFilesMeansNothingHere) {
  Json file = byte_level(bytes_step(false));
  for (const char* role : {"decoded", "searched", "other"}) {
    file["added_tokens"][0]["same_text"] = role;
    for (const Json& config : {Json(), Json::object()}) {
      EXPECT_EQ(run(file, config, "<s>ab").ids, (IdList{8, 3})) << role;
    }
  }
}

TEST(TokenizerConfig, ClassesOfOtherNames) {
  const Json file = byte_level(bytes_step(false));
  for (const char* name :
       {"ElectraTokenizer", "LayoutLMTokenizerFast", "ConvBertTokenizer", "FNetTokenizer"}) {
    EXPECT_TRUE(run(file, {{"tokenizer_class", name}}, "ab").warns("the class")) << name;
  }
  const Json roberta = {{"tokenizer_class", "LongformerTokenizer"}, {"add_prefix_space", true}};
  EXPECT_EQ(run(file, roberta, "ab ab").ids, (IdList{4, 4}));
  const Json phi3 = llama({{"tokenizer_class", "Phi3Tokenizer"}, {"add_prefix_space", false}});
  EXPECT_EQ(run(pieces(legacy_normalizer(), nullptr), phi3, "ab ab").ids, (IdList{6, 7}));
}

TEST(TokenizerConfig, OlderFilesOfTokens) {
  const Json file = byte_level(bytes_step(false));
  const TokenizerFiles files = {.tokenizer = file,
                                .config = {{"bos_token", "</s>"}},
                                .special_tokens_map = {{"bos_token", "<s>"}},
                                .added_tokens = {{"<z>", 10}, {"<s>", 8}}};
  EXPECT_EQ(run(files, "ab<z>").ids, (IdList{3, 10}));
  EXPECT_EQ(complete_tokenizer(files).config.at("bos_token").text(), "<s>");
  TokenizerFiles newer = files;
  newer.config["added_tokens_decoder"] = Json::object();
  EXPECT_EQ(complete_tokenizer(newer).config.at("bos_token").text(), "</s>");
}

TEST(TokenizerConfig, SpecialTokensFromTheFilesBeside) {
  const test::TempFolder folder;
  folder.write("tokenizer.json", kBpe);
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": null})");
  folder.write("special_tokens_map.json", R"({"eos_token": "u", "pad_token": "none"})");
  const TokenizerData data = read_tokenizer(folder.path());
  EXPECT_EQ(data.bos_id, 4);
  EXPECT_EQ(data.eos_id, 3);
  EXPECT_EQ(data.pad_id, -1);
}

TokenizerData completed(const Json& tokenizer, const Json& config) {
  return parse_tokenizer(complete_tokenizer({.tokenizer = tokenizer, .config = config}).tokenizer,
                         "t.json");
}

// DeepSeek's tokenizer.json has no template for BOS; the class adds it.
TEST(TokenizerConfig, LlamasClassAddsBosAndEos) {
  Json bare = bpe();
  bare["post_processor"] = {{"type", "ByteLevel"}};
  Json config = {{"tokenizer_class", "LlamaTokenizerFast"},
                 {"bos_token", "<s>"},
                 {"eos_token", {{"content", "u"}}},
                 {"add_bos_token", true}};
  using Ids = std::vector<uint32_t>;
  const auto around = [&] {
    const TokenizerData data = completed(bare, config);
    return std::pair(data.prefix, data.suffix);
  };
  EXPECT_EQ(around(), (std::pair(Ids{4}, Ids{})));
  bare["post_processor"] = nullptr;
  config["add_eos_token"] = true;
  EXPECT_EQ(around(), (std::pair(Ids{4}, Ids{3})));
  config["add_bos_token"] = false;
  EXPECT_EQ(around(), (std::pair(Ids{}, Ids{3})));
  config["bos_token"] = "none";
  config["add_bos_token"] = true;
  EXPECT_EQ(around(), (std::pair(Ids{}, Ids{3})));
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  EXPECT_EQ(around(), (std::pair(Ids{}, Ids{})));
  config["tokenizer_class"] = "LlamaTokenizer";
  config["eos_token"] = "<s>";
  bare["post_processor"] = {{"type", "Sequence"}, {"processors", {bpe().at("post_processor")}}};
  EXPECT_EQ(around(), (std::pair(Ids{4}, Ids{}))) << "a template stays";
}

TEST(TokenizerConfig, AddedTokensOfTheConfig) {
  const auto loaded = load(completed(bpe(), parse_json(R"({"added_tokens_decoder": {
        "10": {"content": "z10", "special": true}, "4": {"content": "<s>", "lstrip": true},
        "9": {"content": "z9"}, "8": {"content": "z8"}, "7": {"content": "z7"},
        "6": {"content": "z6"}, "5": {"content": "<y>", "rstrip": true, "special": true},
        "1": {"content": "b"}}})",
                                                       "config")));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  EXPECT_EQ(encode(*loaded->tokenizer, "a <s>ab<y> z9z10"), (IdList{0, 4, 0, 1, 5, 9, 10}));
  const auto error = [](const char* list) {
    const Json config = {{"added_tokens_decoder", parse_json(list, "config")}};
    return std::string(guarded([&] { completed(bpe(), config); }).text());
  };
  EXPECT_NE(error(R"({"9": {"content": "<y>"}})").find("has id 9, but its place in the vocabulary"),
            std::string::npos);
  EXPECT_NE(error(R"({"x": {"content": "<y>"}})").find("\"x\" is not a token's id"),
            std::string::npos);
  EXPECT_NE(error(R"([])").find("expected an object"), std::string::npos);
}

}  // namespace
}  // namespace moe
