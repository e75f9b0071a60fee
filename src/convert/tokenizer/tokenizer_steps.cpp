// SPDX-License-Identifier: MIT
// Reads each step's members; a step that is not known is an error that names it.
#include "src/convert/tokenizer/tokenizer_steps.h"

#include "formats/import/failure.h"
#include "src/base/number.h"

namespace moe {
namespace {

constexpr size_t kMaxSequenceDepth = 8;

using Steps = std::vector<TextStepData>;
using Reader = void (*)(const JsonNode& node, const std::string& type, Steps& steps);

[[noreturn]] void unsupported(const JsonNode& node, const std::string& type) {
  fail(MOE_ERR_UNSUPPORTED, "%s: \"%.60s\" is not supported", node.path().c_str(), type.c_str());
}

// Calls `reader` for a step, or for each step of a sequence in `list`.
void read_all(const JsonNode& node, const char* list, Reader reader, size_t depth, Steps& steps) {
  if (node.is_null()) return;
  const std::string type = node.at("type").string();
  if (type != "Sequence") return reader(node, type, steps);
  if (depth == kMaxSequenceDepth) unsupported(node, "Sequence nested this deep");
  for (const JsonNode& element : node.at(list).elements()) {
    read_all(element, list, reader, depth + 1, steps);
  }
}

TextStepData& add(Steps& steps, const char* kind) {
  steps.emplace_back();
  steps.back().kind = kind;
  return steps.back();
}

// {"String": "..."} or {"Regex": "..."}
void read_pattern(const JsonNode& node, TextStepData& step) {
  step.regex = node.has("Regex");
  step.pattern = node.at(step.regex ? "Regex" : "String").string();
}

std::vector<uint8_t> decode_base64(const JsonNode& node) {
  const std::string text = node.string();
  std::vector<uint8_t> out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int n_bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a') + 26;
    } else if (is_digit(c)) {
      value = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else if (c == '=' && i + 2 >= text.size()) {
      break;
    } else {
      fail(MOE_ERR_FORMAT, "%s: not base64 at byte %zu", node.path().c_str(), i);
    }
    bits = bits << 6 | value;
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    out.push_back(static_cast<uint8_t>(bits >> n_bits));
  }
  return out;
}

void read_bert_normalizer(const JsonNode& node, Steps& steps) {
  const bool lowercase = node.boolean("lowercase", true);
  if (node.boolean("clean_text", true)) add(steps, "clean_text");
  if (node.boolean("handle_chinese_chars", true)) add(steps, "space_ideographs");
  if (node.boolean("strip_accents", lowercase)) {  // null: as `lowercase`
    add(steps, "nfd");
    add(steps, "strip_nonspacing");
  }
  if (lowercase) add(steps, "lowercase");
}

void read_normalizer(const JsonNode& node, const std::string& type, Steps& steps) {
  static constexpr const char* kPlain[][2] = {
      {"NFC", "nfc"},
      {"NFD", "nfd"},
      {"NFKC", "nfkc"},
      {"NFKD", "nfkd"},
      {"Lowercase", "lowercase"},
      {"StripAccents", "strip_accents"},
      {"Nmt", "nmt"},
      {"ByteLevel", "byte_level"},
  };
  for (const auto& [theirs, ours] : kPlain) {
    if (type == theirs) {
      add(steps, ours);
      return;
    }
  }
  if (type == "Strip") {
    TextStepData& s = add(steps, "strip");
    s.start = node.boolean("strip_left", false);
    s.stop = node.boolean("strip_right", false);
  } else if (type == "Prepend") {
    add(steps, "prepend").content = node.at("prepend").string();
  } else if (type == "Replace") {
    TextStepData& s = add(steps, "replace");
    read_pattern(node.at("pattern"), s);
    s.content = node.at("content").string();
  } else if (type == "BertNormalizer") {
    read_bert_normalizer(node, steps);
  } else if (type == "Precompiled") {
    if (!node.has("precompiled_charsmap")) return;
    std::vector<uint8_t> data = decode_base64(node.at("precompiled_charsmap"));
    if (!data.empty()) add(steps, "precompiled").data = std::move(data);
  } else {
    unsupported(node, type);
  }
}

std::string read_behavior(const JsonNode& node, const char* fallback) {
  static constexpr const char* kNames[][2] = {{"Removed", "removed"},
                                              {"Isolated", "isolated"},
                                              {"MergedWithPrevious", "merged_with_previous"},
                                              {"MergedWithNext", "merged_with_next"},
                                              {"Contiguous", "contiguous"}};
  const std::string name = node.string("behavior", fallback);
  for (const auto& [theirs, ours] : kNames) {
    if (name == theirs) return ours;
  }
  unsupported(node, name);
}

// prepend_scheme; older files have add_prefix_space.
std::string read_scheme(const JsonNode& node) {
  if (node.has("add_prefix_space") && !node.at("add_prefix_space").boolean()) return "never";
  const char* kNames[] = {"always", "first", "never"};
  return kNames[node.choice("prepend_scheme", 0, {"always", "first", "never"})];
}

void read_pre_tokenizer(const JsonNode& node, const std::string& type, Steps& steps) {
  if (type == "ByteLevel") {
    TextStepData& s = add(steps, "byte_level");
    s.flag = node.boolean("add_prefix_space", true);
    s.regex = node.boolean("use_regex", true);
  } else if (type == "Split") {
    TextStepData& s = add(steps, "split");
    read_pattern(node.at("pattern"), s);
    s.behavior = read_behavior(node, "");
    s.invert = node.boolean("invert", false);
  } else if (type == "Metaspace") {
    TextStepData& s = add(steps, "metaspace");
    s.content = node.at("replacement").string();
    s.scheme = read_scheme(node);
    s.flag = node.boolean("split", true);
  } else if (type == "Digits") {
    add(steps, "digits").flag = node.boolean("individual_digits", false);
  } else if (type == "Punctuation") {
    add(steps, "punctuation").behavior = read_behavior(node, "Isolated");
  } else if (type == "Whitespace") {
    add(steps, "whitespace");
  } else if (type == "WhitespaceSplit") {
    add(steps, "whitespace_split");
  } else if (type == "BertPreTokenizer") {
    add(steps, "whitespace_split");
    add(steps, "punctuation").behavior = "isolated";
  } else if (type == "CharDelimiterSplit") {
    TextStepData& s = add(steps, "split");
    s.pattern = node.at("delimiter").string();
    s.behavior = "removed";
  } else {
    unsupported(node, type);
  }
}

void read_decoder(const JsonNode& node, const std::string& type, Steps& steps) {
  if (type == "ByteLevel") {
    add(steps, "byte_level");
  } else if (type == "ByteFallback") {
    add(steps, "byte_fallback");
  } else if (type == "Fuse") {
    add(steps, "fuse");
  } else if (type == "Metaspace") {
    TextStepData& s = add(steps, "metaspace");
    s.content = node.at("replacement").string();
    s.scheme = read_scheme(node);
  } else if (type == "Replace") {
    TextStepData& s = add(steps, "replace");
    read_pattern(node.at("pattern"), s);
    s.content = node.at("content").string();
  } else if (type == "WordPiece") {
    TextStepData& s = add(steps, "wordpiece");
    s.content = node.string("prefix", "##");
    s.flag = node.boolean("cleanup", true);
  } else if (type == "Strip") {
    TextStepData& s = add(steps, "strip");
    s.content = node.at("content").string();
    s.start = static_cast<uint32_t>(node.integer("start", 0, 0, 64));
    s.stop = static_cast<uint32_t>(node.integer("stop", 0, 0, 64));
  } else {
    unsupported(node, type);
  }
}

}  // namespace

Steps read_normalizers(const JsonNode& node) {
  Steps steps;
  read_all(node, "normalizers", read_normalizer, 0, steps);
  return steps;
}

Steps read_pre_tokenizers(const JsonNode& node) {
  Steps steps;
  read_all(node, "pretokenizers", read_pre_tokenizer, 0, steps);
  return steps;
}

Steps read_decoders(const JsonNode& node) {
  Steps steps;
  read_all(node, "decoders", read_decoder, 0, steps);
  return steps;
}

}  // namespace moe
