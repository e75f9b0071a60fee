// SPDX-License-Identifier: MIT
// Finds the importer for a config.json, suggests similar names for one that is not known, and
// checks its result.
#include "src/convert/importer.h"

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/rotation.h"
#include "src/convert/sampling_advice.h"
#include "src/convert/sentence_transformers.h"

namespace moe {

// Here alone, so that a new architecture compiles this file and its own.
#define MOE_ARCHITECTURE(name)           \
  namespace arch::name {                 \
  std::span<const Importer> importers(); \
  }
#include "src/convert/arch/list.h"
#undef MOE_ARCHITECTURE

namespace {

constexpr JsonLimits kConfigLimits = {.max_bytes = 1u << 20, .max_depth = 32, .max_values = 50'000};

std::vector<Importer> all_importers() {
  std::vector<Importer> all;
#define MOE_ARCHITECTURE(name) \
  for (const Importer& importer : arch::name::importers()) all.push_back(importer);
#include "src/convert/arch/list.h"
#undef MOE_ARCHITECTURE
  return all;
}

size_t common_start(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

// Relatives come first, as a message has no room for all names.
[[noreturn]] void fail_unknown(const char* what, const std::string& name) {
  constexpr size_t kRoom = 190;
  if (const char* const reason = beyond_layers(name)) {
    fail(MOE_ERR_UNSUPPORTED,
         "config.json: %s \"%.60s\" is not supported: no layer here computes %s", what,
         name.c_str(), reason);
  }
  if (gguf_reads(name)) {
    fail(MOE_ERR_UNSUPPORTED, "config.json: unknown %s \"%.60s\"; a GGUF file of it is read", what,
         name.c_str());
  }
  std::vector<Importer> all = all_importers();
  std::stable_sort(all.begin(), all.end(), [&](const Importer& a, const Importer& b) {
    return common_start(a.model_type, name) > common_start(b.model_type, name);
  });
  std::string known;
  size_t n = 0;
  while (n < all.size() && known.size() <= kRoom) {
    known += (n == 0 ? "" : ", ") + std::string(all[n].model_type);
    ++n;
  }
  fail(MOE_ERR_UNSUPPORTED,
       "config.json: unknown %s \"%.60s\"; known: %s and %zu more; moe_research describes any "
       "model of known layers",
       what, name.c_str(), known.c_str(), all.size() - n);
}

Importer find_importer(const JsonNode& config) {
  const std::vector<Importer> importers = all_importers();
  if (config.has("model_type") || !config.has("architectures")) {
    const std::string model_type = config.at("model_type").string();
    for (const Importer& importer : importers) {
      if (model_type == importer.model_type) return importer;
    }
    fail_unknown("model_type", model_type);
  }
  std::string architecture;
  for (const JsonNode& node : config.at("architectures").elements()) {
    architecture = node.string();
    for (const Importer& importer : importers) {
      if (!architecture.empty() && architecture == importer.architecture) return importer;
    }
  }
  fail_unknown("architecture", architecture);
}

}  // namespace

Imported import_checkpoint(const Checkpoint& checkpoint) {
  const Json document = checkpoint.document("config.json", kConfigLimits);
  return import_config(JsonNode(document, "config.json"), checkpoint);
}

Imported import_config(const JsonNode& config, const Checkpoint& checkpoint) {
  const Importer importer = find_importer(config);
  Imported imported = importer.read(config, checkpoint);
  imported.importer = importer.model_type;
  read_sentence_transformers(checkpoint, &imported);
  read_rotation(checkpoint, &imported);
  const Status valid = validate(imported.config);
  if (!valid.ok()) throw Failure(valid.with_context("config.json"));
  read_sampling_advice(checkpoint, &imported);
  return imported;
}

void leave_out_predictions(Imported* imported) {
  ModelConfig& config = imported->config;
  imported->n_skipped_layers += config.n_predictions;
  for (; config.n_predictions > 0; --config.n_predictions) config.layers.pop();
  config.raw_predictions = false;
  for (std::string& pattern : imported->predictions) {
    imported->ignored.push_back(std::move(pattern));
  }
  imported->predictions.clear();
}

const LayerConfig* like_guessing(const ModelConfig& config) {
  const LayerConfig* like = nullptr;
  for (const LayerConfig& other : config.layers) {
    if (!other.has_attention) continue;
    const bool more = like != nullptr && like->ffn.kind == FfnKind::kMoe;
    if (!more || other.ffn.kind == FfnKind::kMoe) like = &other;
  }
  return like;
}

const char* beyond_layers(std::string_view architecture) {
  for (const char* name :
       {"gemma3n", "gemma3n_text", "Gemma3nForConditionalGeneration", "Gemma3nForCausalLM"}) {
    if (architecture != name) continue;
    return "Gemma 3n's several copies of each token's state (AltUp), low-rank residuals (LAuReL) "
           "and activations cut at a quantile";
  }
  return nullptr;
}

bool matches(std::string_view pattern, std::string_view text) {
  // Greedy with one backtracking point: only the last '*' ever needs to match more.
  size_t p = 0, t = 0, star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace moe
