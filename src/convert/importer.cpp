#include "src/convert/importer.h"

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/sampling_advice.h"

namespace moe {
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

[[noreturn]] void fail_unknown(const char* what, const std::string& name) {
  constexpr size_t kRoom = 160;  // of the names that a message has room for
  std::string known;
  size_t n_more = 0;
  for (const Importer& importer : all_importers()) {
    if (known.size() > kRoom) {
      ++n_more;
    } else {
      known += (known.empty() ? "" : ", ") + std::string(importer.model_type);
    }
  }
  if (gguf_reads(name)) {
    fail(MOE_ERR_UNSUPPORTED,
         "config.json: unknown %s \"%.60s\"; a GGUF file of it is read (docs/checkpoints.md)", what,
         name.c_str());
  }
  fail(MOE_ERR_UNSUPPORTED,
       "config.json: unknown %s \"%.60s\"; moe_research (formats/README.md) is for any model of "
       "known layers. Known: %s and %zu more (docs/checkpoints.md)",
       what, name.c_str(), known.c_str(), n_more);
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
  const Status valid = validate(imported.config);
  if (!valid.ok()) throw Failure(valid.with_context("config.json"));
  read_sampling_advice(checkpoint, &imported);
  return imported;
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
