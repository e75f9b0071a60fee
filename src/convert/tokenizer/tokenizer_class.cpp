// SPDX-License-Identifier: MIT
// The tables of classes, with the steps and tokens that each builds, and of model types; the choice
// of a class by these.
#include "src/convert/tokenizer/tokenizer_class.h"

#include <algorithm>
#include <array>

namespace moe {
namespace {

constexpr const char* kNone = "null";
constexpr const char* kNfc = R"({"type": "NFC"})";
constexpr const char* kPrecompiled = R"({"type": "Precompiled", "precompiled_charsmap": "AA=="})";
constexpr const char* kByteLevel = R"({"type": "ByteLevel"})";
constexpr const char* kMetaspaceWords =
    R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]})";
constexpr const char* kMetaspaceText =
    R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})";
constexpr const char* kQwen =
    R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
        "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
        {"type": "ByteLevel", "use_regex": false}]})";
constexpr const char* kQwen35 =
    R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
        "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
        {"type": "ByteLevel", "use_regex": false}]})";
constexpr const char* kDigitsBytes =
    R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel"}]})";
constexpr const char* kBert = R"({"type": "BertNormalizer"})";

constexpr const char* kBpe = R"({"type": "BPE"})";
constexpr const char* kBpeWithBytes = R"({"type": "BPE", "byte_fallback": true})";
constexpr const char* kUnigram2 = R"({"type": "Unigram", "unk_id": 2})";
constexpr const char* kUnigram3 = R"({"type": "Unigram", "unk_id": 3})";
constexpr const char* kWordPiece = R"({"type": "WordPiece"})";

constexpr const char* kEndOfText = R"({"unk_token": "<|endoftext|>",
    "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"})";
constexpr const char* kQwenTokens = R"({"unk_token": "<|endoftext|>",
    "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})";
constexpr const char* kNeoxTokens = R"({"unk_token": "<|endoftext|>",
    "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|padding|>"})";
constexpr const char* kLlamaTokens =
    R"({"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"})";
constexpr const char* kGemmaTokens = R"({"unk_token": "<unk>", "bos_token": "<bos>",
    "eos_token": "<eos>", "pad_token": "<pad>", "mask_token": "<mask>"})";
constexpr const char* kRobertaTokens = R"({"bos_token": "<s>", "eos_token": "</s>",
    "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>",
    "mask_token": "<mask>"})";
constexpr const char* kT5Tokens =
    R"({"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})";
constexpr const char* kCohereTokens = R"({"unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>",
    "eos_token": "<|END_OF_TURN_TOKEN|>", "pad_token": "<PAD>", "cls_token": "<CLS>",
    "sep_token": "<SEP>", "mask_token": "<MASK_TOKEN>"})";
constexpr const char* kBertTokens = R"({"unk_token": "[UNK]", "sep_token": "[SEP]",
    "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"})";

using P = PrefixSpace;
// Their tokens: the special ones as `transformers` 5 names them where a key is missing.
constexpr TokenizerClass kClasses[] = {
    {"GPT2Tokenizer", "", P::kByteLevel, kNone, kByteLevel, kBpe, nullptr, nullptr, kEndOfText},
    {"CodeGenTokenizer", "", P::kByteLevel, kNone, kByteLevel, kBpe, nullptr, nullptr, kEndOfText},
    {"Qwen2Tokenizer", "", P::kByteLevel, kNfc, kQwen, kBpe, nullptr, nullptr, kQwenTokens},
    {"Qwen3_5Tokenizer", "", P::kByteLevel, kNfc, kQwen35, kBpe, nullptr, nullptr, kQwenTokens},
    {"GPTNeoXTokenizer", "", P::kByteLevel, kNfc, kByteLevel, kBpe, "", "", kNeoxTokens},
    {"RobertaTokenizer", "BartTokenizer LEDTokenizer LongformerTokenizer MvpTokenizer",
     P::kByteLevel, kNone, kByteLevel, kBpe, "cls_token", "sep_token", kRobertaTokens},
    {"CohereTokenizer", "", P::kByteLevel, kNfc, kDigitsBytes, kBpe, nullptr, nullptr,
     kCohereTokens},
    {"LlamaTokenizer", "Phi3Tokenizer", P::kLlama, kNone, kMetaspaceText, kBpeWithBytes, nullptr,
     nullptr, kLlamaTokens},
    {"CodeLlamaTokenizer", "", P::kMetaspace, kNone, kMetaspaceText, kBpeWithBytes, "bos_token", "",
     kLlamaTokens},
    {"GemmaTokenizer", "", P::kIgnored,
     R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})", kNone, kBpeWithBytes,
     nullptr, nullptr, kGemmaTokens},
    {"T5Tokenizer", "", P::kIgnored, kPrecompiled, kMetaspaceWords, kUnigram2, "", "eos_token",
     kT5Tokens},
    {"XLMRobertaTokenizer", "", P::kMetaspace, kPrecompiled, kMetaspaceWords, kUnigram3,
     "bos_token", "eos_token", kRobertaTokens},
    {"MBartTokenizer", "", P::kIgnored, kNone, kMetaspaceWords, kUnigram3, "", "eos_token src_lang",
     kRobertaTokens},
    {"BertTokenizer",
     "ConvBertTokenizer DistilBertTokenizer DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer "
     "DPRReaderTokenizer ElectraTokenizer LayoutLMTokenizer LxmertTokenizer MobileBertTokenizer "
     "SqueezeBertTokenizer",
     P::kIgnored, kBert, R"({"type": "BertPreTokenizer"})", kWordPiece, "cls_token", "sep_token",
     kBertTokens}};

// Other classes with steps of their own, which are not described here.
constexpr const char* kOpaque =
    " AlbertTokenizer BarthezTokenizer BartphoTokenizer BertGenerationTokenizer "
    "BertJapaneseTokenizer BertweetTokenizer BigBirdTokenizer BioGptTokenizer "
    "BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer CTRLTokenizer "
    "CamembertTokenizer CanineTokenizer ClvpTokenizer CpmAntTokenizer CpmTokenizer "
    "DebertaTokenizer DebertaV2Tokenizer DiaTokenizer EsmTokenizer EsmcTokenizer FNetTokenizer "
    "FSMTTokenizer "
    "FastSpeech2ConformerTokenizer FlaubertTokenizer FunnelTokenizer GPTNeoXJapaneseTokenizer "
    "GPTSw3Tokenizer HerbertTokenizer LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer "
    "LayoutXLMTokenizer LukeTokenizer M2M100Tokenizer MBart50Tokenizer MLukeTokenizer "
    "MPNetTokenizer MarianTokenizer MarkupLMTokenizer MgpstrTokenizer MyT5Tokenizer "
    "NllbTokenizer NougatTokenizer OpenAIGPTTokenizer PLBartTokenizer PegasusTokenizer "
    "PerceiverTokenizer PhobertTokenizer ProphetNetTokenizer RagTokenizer ReformerTokenizer "
    "RemBertTokenizer RoCBertTokenizer RoFormerTokenizer SeamlessM4TTokenizer Siglip2Tokenizer "
    "SiglipTokenizer Speech2TextTokenizer SpeechT5Tokenizer SplinterTokenizer TapasTokenizer "
    "Tipsv2Tokenizer UdopTokenizer VideoPrismTokenizer VitsTokenizer Wav2Vec2CTCTokenizer "
    "Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer XGLMTokenizer XLMTokenizer XLNetTokenizer ";

// The classes of model types, "" where it is tokenizer.json as it stands. Other model types than
// these leave the choice to tokenizer_class.
struct ModelType {
  const char* name;
  const char* tokenizer;
  bool over_files = false;  // counts even if the files name another class
};
constexpr ModelType kModelTypes[] = {{"bart", "RobertaTokenizer"},
                                     {"bert", "BertTokenizer"},
                                     {"distilbert", "BertTokenizer"},
                                     {"ernie4_5", "", true},
                                     {"ernie4_5_moe", "", true},
                                     {"flex_olmo", ""},
                                     {"gemma", "GemmaTokenizer"},
                                     {"gemma2", "GemmaTokenizer"},
                                     {"gemma3", "GemmaTokenizer"},
                                     {"gemma3_text", "GemmaTokenizer"},
                                     {"glm4", ""},
                                     {"glm4_moe", ""},
                                     {"glm4_moe_lite", ""},
                                     {"gpt2", "GPT2Tokenizer"},
                                     {"gpt_neox", "GPTNeoXTokenizer"},
                                     {"granite", ""},
                                     {"granitemoe", ""},
                                     {"granitemoehybrid", ""},
                                     {"granitemoeshared", ""},
                                     {"marian", "MarianTokenizer"},
                                     {"mbart", "MBartTokenizer"},
                                     {"minimax_m2", "", true},
                                     {"ministral", ""},
                                     {"mistral", ""},
                                     {"mistral3", ""},
                                     {"mixtral", ""},
                                     {"modernbert", "", true},
                                     {"mpnet", "MPNetTokenizer"},
                                     {"nomic_bert", "BertTokenizer"},
                                     {"olmo", "GPTNeoXTokenizer"},
                                     {"olmo2", ""},
                                     {"olmo3", ""},
                                     {"olmoe", "GPTNeoXTokenizer"},
                                     {"phi3", "", true},
                                     {"phimoe", "", true},
                                     {"qwen2", "Qwen2Tokenizer", true},
                                     {"qwen2_moe", "Qwen2Tokenizer"},
                                     {"qwen3", "Qwen2Tokenizer"},
                                     {"qwen3_moe", "Qwen2Tokenizer"},
                                     {"qwen3_next", "Qwen2Tokenizer"},
                                     {"roberta", "RobertaTokenizer"},
                                     {"t5", "T5Tokenizer"},
                                     {"xlm-roberta", "XLMRobertaTokenizer"}};

bool lists(std::string_view names, const std::string& name) {
  const std::string padded = " " + std::string(names) + " ";
  return padded.find(" " + name + " ") != std::string::npos;
}

// The steps of the class, of which `opaque` says that it has some, though unknown.
const TokenizerClass* find_steps(const std::string& name, bool* opaque) {
  *opaque = lists(kOpaque, name);
  for (const TokenizerClass& c : kClasses) {
    if (name == c.name || lists(c.aliases, name)) return &c;
  }
  return nullptr;
}

std::string without_fast(std::string name) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

ClassChoice choice_of(const std::string& name, std::string place) {
  bool opaque = false;
  const TokenizerClass* const steps = name.empty() ? nullptr : find_steps(name, &opaque);
  if (steps == nullptr && !opaque) return {};
  return {name, steps, std::move(place)};
}

bool is_byte_level(const Json& step) {
  if (step.is_array()) return std::any_of(step.begin(), step.end(), is_byte_level);
  if (!step.is_object()) return false;
  if (text_member(step, "type") == "ByteLevel") return true;
  return std::any_of(step.items().begin(), step.items().end(),
                     [](const auto& member) { return is_byte_level(member.second); });
}

bool has_byte_level(const Json& tokenizer) {
  return std::any_of(tokenizer.items().begin(), tokenizer.items().end(), [](const auto& member) {
    return member.first != "model" && is_byte_level(member.second);
  });
}

}  // namespace

std::string text_member(const Json& object, const char* key) {
  const Json* const value = object.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

ClassChoice choose_class(const Json& tokenizer, const Json& config, const Json& model) {
  const std::string type = text_member(model, "model_type");
  const auto* const mapped = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                          [&](const ModelType& m) { return type == m.name; });
  const bool known = mapped != std::end(kModelTypes);
  std::string named = without_fast(text_member(config, "tokenizer_class"));
  std::string place = "tokenizer_config.json: tokenizer_class";
  if (named.empty()) {
    named = without_fast(text_member(model, "tokenizer_class"));
    place = "config.json: tokenizer_class";
  }
  const std::string of_type = "config.json: model_type";
  if (named == "LlamaTokenizer" && has_byte_level(tokenizer)) {
    // A name that says nothing: the class has no ByteLevel.
    return known && mapped->over_files ? choice_of(mapped->tokenizer, of_type) : ClassChoice();
  }
  if (known && mapped->over_files) return choice_of(mapped->tokenizer, of_type);
  if (named.empty()) return known ? choice_of(mapped->tokenizer, of_type) : ClassChoice();
  if (known && mapped->tokenizer[0] == '\0') return {};
  return choice_of(named, place);
}

}  // namespace moe
