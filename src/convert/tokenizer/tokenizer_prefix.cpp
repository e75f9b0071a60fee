// SPDX-License-Identifier: MIT
// Finds the steps that put a space before a text, compares them with the key, and adds or removes
// one.
#include "src/convert/tokenizer/tokenizer_prefix.h"

#include <algorithm>

namespace moe {
namespace {

constexpr size_t kMaxNesting = 8;
constexpr const char* kMark = "▁";  // a space in the pieces of SentencePiece

bool flag(const Json& step, const char* key, bool fallback) {
  const Json* const value = step.find(key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

const char* list_of(std::string_view member) {
  if (member == "normalizer") return "normalizers";
  return member == "pre_tokenizer" ? "pretokenizers" : "decoders";
}

void visit(Json* node, const char* list, const std::function<void(Json* step)>& f, size_t depth) {
  if (!node->is_object() || depth > kMaxNesting) return;
  if (text_member(*node, "type") != "Sequence") return f(node);
  const Json* const steps = node->find(list);
  if (steps == nullptr || !steps->is_array()) return;
  for (Json& step : (*node)[list].elements()) visit(&step, list, f, depth + 1);
}

// Keeps the steps for which `keep` is true; null if none is left.
void filter(Json* node, const char* list, const std::function<bool(const Json& step)>& keep,
            size_t depth = 0) {
  if (!node->is_object() || depth > kMaxNesting) return;
  if (text_member(*node, "type") != "Sequence") {
    if (!keep(*node)) *node = nullptr;
    return;
  }
  const Json* const steps = node->find(list);
  if (steps == nullptr || !steps->is_array()) return;
  Json kept = Json::array();
  for (Json step : *steps) {
    filter(&step, list, keep, depth + 1);
    if (!step.is_null()) kept.push_back(std::move(step));
  }
  (*node)[list] = std::move(kept);
}

bool is_prepend(const Json& step) { return text_member(step, "type") == "Prepend"; }
bool is_leading_strip(const Json& step) {
  return text_member(step, "type") == "Strip" && text_member(step, "content") == " ";
}
bool is_replaced_space(const Json& step) {
  const Json* const pattern = step.find("pattern");
  return text_member(step, "type") == "Replace" && pattern != nullptr &&
         text_member(*pattern, "String") == " " && text_member(step, "content") == kMark;
}

bool metaspace_adds(const Json& step) {
  return flag(step, "add_prefix_space", true) && text_member(step, "prepend_scheme") != "never";
}

void set_scheme(Json* tokenizer, const char* scheme) {
  for (const char* member : {"pre_tokenizer", "decoder"}) {
    each_step(tokenizer, member, [&](Json* step) {
      if (text_member(*step, "type") != "Metaspace") return;
      (*step)["prepend_scheme"] = scheme;
      step->erase("add_prefix_space");
    });
  }
}

void remove_prefix(Json* tokenizer) {
  set_scheme(tokenizer, "never");
  if (tokenizer->contains("normalizer")) {
    filter(&(*tokenizer)["normalizer"], "normalizers",
           [](const Json& s) { return !is_prepend(s); });
  }
  if (tokenizer->contains("decoder")) {
    filter(&(*tokenizer)["decoder"], "decoders",
           [](const Json& s) { return !is_leading_strip(s); });
  }
}

// False if there is no step that could add it.
bool add_prefix(Json* tokenizer, PrefixSpace kind, const char* scheme) {
  const Json::Array steps = flat_steps(tokenizer->find("pre_tokenizer"), "pretokenizers");
  const bool has_metaspace = std::any_of(steps.begin(), steps.end(), [](const Json& s) {
    return text_member(s, "type") == "Metaspace";
  });
  if (!has_metaspace) {
    const Json::Array normal = flat_steps(tokenizer->find("normalizer"), "normalizers");
    const bool plain = kind == PrefixSpace::kLlama && steps.empty() &&
                       std::all_of(normal.begin(), normal.end(), is_replaced_space);
    if (!plain) return false;
    (*tokenizer)["normalizer"] = nullptr;
    (*tokenizer)["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", kMark}, {"split", false}};
  }
  set_scheme(tokenizer, scheme);
  const Json::Array decoders = flat_steps(tokenizer->find("decoder"), "decoders");
  const bool strips = std::any_of(decoders.begin(), decoders.end(), [](const Json& s) {
    return is_leading_strip(s) || text_member(s, "type") == "Metaspace";
  });
  if (strips || decoders.empty()) return true;
  Json all(decoders);
  all.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  (*tokenizer)["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(all)}};
  return true;
}

}  // namespace

Json::Array flat_steps(const Json* node, const char* list, size_t depth) {
  if (node == nullptr || !node->is_object() || depth > kMaxNesting) return {};
  if (text_member(*node, "type") != "Sequence") return {*node};
  const Json* const steps = node->find(list);
  if (steps == nullptr || !steps->is_array()) return {};
  Json::Array out;
  for (const Json& step : *steps) {
    for (Json& inner : flat_steps(&step, list, depth + 1)) out.push_back(std::move(inner));
  }
  return out;
}

void each_step(Json* tokenizer, const char* member, const std::function<void(Json* step)>& f) {
  if (tokenizer->contains(member)) visit(&(*tokenizer)[member], list_of(member), f, 0);
}

bool adds_prefix_space(const Json& tokenizer) {
  const Json::Array normal = flat_steps(tokenizer.find("normalizer"), "normalizers");
  if (std::any_of(normal.begin(), normal.end(), is_prepend)) return true;
  const Json::Array steps = flat_steps(tokenizer.find("pre_tokenizer"), "pretokenizers");
  return std::any_of(steps.begin(), steps.end(), [](const Json& step) {
    const std::string type = text_member(step, "type");
    if (type == "ByteLevel") return flag(step, "add_prefix_space", true);
    return type == "Metaspace" && metaspace_adds(step);
  });
}

bool set_prefix_space(Json* tokenizer, PrefixSpace kind, bool wanted, const char* scheme) {
  if (kind == PrefixSpace::kIgnored || adds_prefix_space(*tokenizer) == wanted) return false;
  if (kind == PrefixSpace::kByteLevel) {
    each_step(tokenizer, "pre_tokenizer", [&](Json* step) {
      if (text_member(*step, "type") == "ByteLevel") (*step)["add_prefix_space"] = wanted;
    });
  } else if (wanted) {
    add_prefix(tokenizer, kind, scheme);
  } else {
    remove_prefix(tokenizer);
  }
  return adds_prefix_space(*tokenizer) == wanted;
}

}  // namespace moe
