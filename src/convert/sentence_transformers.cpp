// SPDX-License-Identifier: MIT
// Reads pooling, normalisation, prompts and length from the modules, and refuses modules that
// change a vector otherwise.
#include "src/convert/sentence_transformers.h"

#include <algorithm>
#include <optional>

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/tokenizer/vocab_txt.h"

namespace moe {
namespace {

constexpr const char* kModules = "modules.json";
constexpr const char* kLength = "sentence_bert_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kPrompts = "config_sentence_transformers.json";
constexpr const char* kAlone =
    "; to convert the model without what is around it, take modules.json out of the folder";

// "sentence_transformers.models.Pooling" is a Pooling.
std::string kind_of(const JsonNode& module) {
  const std::string type = module.at("type").string();
  return type.substr(type.rfind('.') + 1);
}

// A module's configuration, in a folder inside the checkpoint's.
std::string config_of(const JsonNode& module) {
  const JsonNode path = module.at("path");
  const std::string folder = path.string();
  const bool plain = !folder.empty() && folder[0] != '.' &&
                     folder.find('\0') == std::string::npos &&
                     folder.find('/') == std::string::npos;
  if (!plain) path.fail_expected("the name of a folder beside it");
  return folder + "/config.json";
}

// The only mode that is on. Earlier versions wrote a truth value for each, later ones names.
std::string pooling_mode(const JsonNode& node) {
  if (node.has("pooling_mode")) {
    const JsonNode mode = node.at("pooling_mode");
    if (!mode.value().is_array()) return mode.string();
    const std::vector<JsonNode> modes = mode.elements();
    if (modes.size() == 1) return modes[0].string();
    fail_value(mode, std::string("one pooling at a time is") + kAlone);
  }
  constexpr std::string_view kPrefix = "pooling_mode_";
  std::string found;
  for (const auto& [key, value] : node.value().items()) {
    if (!key.starts_with(kPrefix) || !JsonNode(value, node.path() + "." + key).boolean()) continue;
    if (!found.empty()) {
      fail(MOE_ERR_UNSUPPORTED, "%s: %.60s and %.60s at once are not supported%s",
           node.path().c_str(), found.c_str(), key.c_str(), kAlone);
    }
    found = key;
  }
  return found.empty() ? "mean" : found.substr(kPrefix.size());
}

void read_pooling(const JsonNode& node, TextVectorConfig* out) {
  node.only({"word_embedding_dimension", "embedding_dimension", "include_prompt", "pooling_mode",
             "pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens",
             "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens",
             "pooling_mode_lasttoken"});
  static constexpr std::pair<std::string_view, Pooling> kModes[] = {{"mean", Pooling::kMean},
                                                                    {"mean_tokens", Pooling::kMean},
                                                                    {"cls", Pooling::kFirst},
                                                                    {"cls_token", Pooling::kFirst},
                                                                    {"lasttoken", Pooling::kLast}};
  const std::string mode = pooling_mode(node);
  const auto* found = std::find_if(std::begin(kModes), std::end(kModes),
                                   [&](const auto& m) { return m.first == mode; });
  if (found == std::end(kModes)) {
    fail(MOE_ERR_UNSUPPORTED,
         "%s: pooling \"%.60s\" is not supported; mean, cls and lasttoken are%s",
         node.path().c_str(), mode.c_str(), kAlone);
  }
  out->known = true;
  out->pooling = found->second;
}

// Reads the modules in their order: the model, pooling, and perhaps normalisation.
void read_modules(const Checkpoint& checkpoint, const JsonNode& modules, TextVectorConfig* out,
                  bool* with_prompt) {
  static constexpr const char* kOrder[] = {"Transformer", "Pooling", "Normalize"};
  size_t done = 0;
  for (const JsonNode& module : modules.elements()) {
    const std::string kind = kind_of(module);
    const bool expected = done < std::size(kOrder) && kind == kOrder[done];
    if (!expected) {
      fail(MOE_ERR_UNSUPPORTED,
           "%s: a module %.60s is not supported; Transformer, Pooling and Normalize in this order "
           "are%s",
           module.path().c_str(), kind.c_str(), kAlone);
    }
    if (done == 1) {
      const std::string name = config_of(module);
      const Json document = checkpoint.document(name);
      const JsonNode node(document, name);
      read_pooling(node, out);
      *with_prompt = node.boolean("include_prompt", true);
    }
    out->normalise = done == 2;
    ++done;
  }
  if (done < 2) modules.fail_expected("a Transformer and a Pooling");
}

// True if a normaliser of tokenizer.json makes text lower case.
bool lowers(const Json& normalizer, size_t depth = 0) {
  constexpr size_t kMaxDepth = 8;
  if (!normalizer.is_object() || depth == kMaxDepth) return false;
  const Json* const type = normalizer.find("type");
  const Json* const lowercase = normalizer.find("lowercase");
  if (type != nullptr && *type == "Lowercase") return true;
  if (lowercase != nullptr && *lowercase == true) return true;
  const Json* const parts = normalizer.find("normalizers");
  if (parts == nullptr || !parts->is_array()) return false;
  return std::any_of(parts->begin(), parts->end(),
                     [&](const Json& part) { return lowers(part, depth + 1); });
}

// Later versions leave the length to the tokenizer.
std::optional<double> read_limit(const Checkpoint& checkpoint, const JsonNode& length) {
  if (length.has("max_seq_length")) {
    return static_cast<double>(length.at("max_seq_length").integer(1, int64_t{1} << 40));
  }
  if (!checkpoint.has_document(kTokenizerConfig)) return std::nullopt;
  const Json document = checkpoint.document(kTokenizerConfig);
  const JsonNode node(document, kTokenizerConfig);
  if (!node.has("model_max_length")) return std::nullopt;
  const double n = node.at("model_max_length").number();
  if (!(n >= 1)) node.at("model_max_length").fail_expected("a number from 1 on");
  return n;
}

void check_lower_case(const Checkpoint& checkpoint, const JsonNode& length) {
  if (!length.boolean("do_lower_case", false)) return;
  bool lower = false;
  const bool only_words = has_only_vocab_txt(checkpoint);
  if (only_words || checkpoint.has_document("tokenizer.json")) {
    const Json tokenizer =
        only_words ? tokenizer_of_vocab_txt(checkpoint) : checkpoint.document("tokenizer.json");
    const Json* const normalizer = tokenizer.is_object() ? tokenizer.find("normalizer") : nullptr;
    lower = normalizer != nullptr && lowers(*normalizer);
  }
  if (!lower) fail_value(length.at("do_lower_case"), "only a tokenizer that does this itself is");
}

// The output that the model gives to the pooling, in later versions.
void check_output(const JsonNode& length) {
  if (!length.has("modality_config")) return;
  const JsonNode modality = length.at("modality_config");
  if (!modality.has("text") || !modality.at("text").has("method_output_name")) return;
  const JsonNode name = modality.at("text").at("method_output_name");
  if (name.value() == "last_hidden_state") return;
  fail_value(name, std::string("only \"last_hidden_state\" is") + kAlone);
}

void read_length(const Checkpoint& checkpoint, ModelConfig* config) {
  const Json document =
      checkpoint.has_document(kLength) ? checkpoint.document(kLength) : Json::object();
  const JsonNode node(document, kLength);
  const std::optional<double> limit = read_limit(checkpoint, node);
  const bool lower = limit && *limit < config->context_length;
  if (lower) config->text_vector.max_tokens = static_cast<int32_t>(*limit);
  check_lower_case(checkpoint, node);
  check_output(node);
}

const char* keep(const JsonNode& node, Imported* out) {
  std::string text = node.string();
  if (text.find('\0') != std::string::npos) node.fail_expected("a text without zero bytes");
  return out->texts.emplace_back(std::move(text)).c_str();
}

void read_prompts(const Checkpoint& checkpoint, bool with_prompt, Imported* out) {
  if (!checkpoint.has_document(kPrompts)) return;
  const Json document = checkpoint.document(kPrompts);
  const JsonNode node(document, kPrompts);
  if (!node.has("prompts")) return;
  const JsonNode list = node.at("prompts");
  if (!list.value().is_object()) list.fail_expected("an object");
  TextVectorConfig& v = out->config.text_vector;
  const std::string chosen = node.string("default_prompt_name", "");
  if (list.value().size() > kMaxPrompts) {
    fail(MOE_ERR_FORMAT, "%s: expected at most %u prompts, found %zu", list.path().c_str(),
         kMaxPrompts, list.value().size());
  }
  for (const auto& [name, text] : list.value().items()) {
    const Json key(name);
    const std::string path = list.path() + "." + name;
    if (name == chosen) v.default_prompt = static_cast<int32_t>(v.prompts.size());
    const char* const stored = keep(JsonNode(key, path), out);
    check(v.prompts.push({stored, keep(JsonNode(text, path), out)}));
    if (with_prompt || *v.prompts.back().text == '\0') continue;
    fail(MOE_ERR_UNSUPPORTED,
         "%s: a pooling that leaves the prompt's tokens out (include_prompt) is not supported%s",
         path.c_str(), kAlone);
  }
  if (chosen.empty() || v.default_prompt >= 0) return;
  node.at("default_prompt_name").fail_expected("the name of one of the prompts");
}

}  // namespace

void read_sentence_transformers(const Checkpoint& checkpoint, Imported* out) {
  if (!checkpoint.has_document(kModules)) return;
  const Json document = checkpoint.document(kModules);
  bool with_prompt = true;
  read_modules(checkpoint, JsonNode(document, kModules), &out->config.text_vector, &with_prompt);
  read_length(checkpoint, &out->config);
  read_prompts(checkpoint, with_prompt, out);
}

}  // namespace moe
