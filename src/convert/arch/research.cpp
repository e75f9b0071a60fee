// SPDX-License-Identifier: MIT
// The research layout: written by a PyTorch script (formats/README.md). Tensor names are the slots'
// own names.

#include "formats/import/failure.h"
#include "kernels/router/table.h"
#include "quant/formats.h"
#include "src/convert/arch/research_layer.h"
#include "src/convert/importer.h"

namespace moe::arch::research {
namespace {

constexpr int32_t kMaxLayers = 1024;
constexpr int32_t kBig = 1 << 24;
constexpr size_t kMaxRules = 1024;  // every tensor is matched with every rule
constexpr size_t kMaxRuleBytes = 256;

void read_norm(const JsonNode& node, ModelConfig* config) {
  node.only({"kind", "eps"});
  config->norm = value_of(node.at("kind"), kNormKinds, 1);
  config->norm_eps = node.number("eps", 1e-5f);
}

void read_special_tokens(const JsonNode& node, ModelConfig* config) {
  config->bos_token_id = node.integer("bos_token_id", -1, 0, kBig);
  config->pad_token_id = node.integer("pad_token_id", -1, 0, kBig);
  config->mask_token_id = node.integer("mask_token_id", -1, 0, kBig);
  config->add_bos = node.boolean("add_bos", false);
  if (!node.has("eos_token_ids")) return;
  for (const JsonNode& id : node.at("eos_token_ids").elements()) {
    check(config->eos_token_ids.push(static_cast<int32_t>(id.integer(0, kBig))));
  }
}

void read_layer_input(const JsonNode& node, LayerInputConfig* in) {
  node.only({"width", "act", "multiplier", "projection_multiplier", "projection_eps"});
  in->width = static_cast<int32_t>(node.at("width").integer(1, 1 << 20));
  in->act = value_of(node.at("act"), kActivations);
  in->multiplier = node.number("multiplier", 1);
  in->projection_multiplier = node.number("projection_multiplier", 1);
  in->projection_eps = node.number("projection_eps", 0);
}

void read_head(const JsonNode& node, HeadConfig* head) {
  node.only({"kind", "n_labels", "dense", "norm", "act", "pooling"});
  if (node.has("kind")) head->kind = value_of(node.at("kind"), kHeadKinds);
  head->n_labels = node.integer("n_labels", 0, 0, kBig);
  head->dense = node.boolean("dense", false);
  head->norm = node.boolean("norm", false);
  if (node.has("act")) head->act = value_of(node.at("act"), kActivations);
  if (node.has("pooling")) head->pooling = value_of(node.at("pooling"), kPoolings);
}

// Relations are validated with the whole configuration.
void read_source(const JsonNode& node, ModelConfig* config) {
  config->n_encoder_layers = node.integer("n_encoder_layers", 0, 0, kMaxLayers);
  config->source_length = node.integer("source_length", 0, 0, kBig);
  config->encoder_norm = node.boolean("encoder_norm", false);
  config->start_token_id = node.integer("start_token_id", -1, 0, kBig);
  config->forced_token_id = node.integer("forced_token_id", -1, 0, kBig);
}

void read_model(const JsonNode& node, ModelConfig* config) {
  node.only({"model_type",
             "layout_version",
             "name",
             "vocab_size",
             "d_model",
             "n_layers",
             "context_length",
             "norm",
             "positions",
             "second_positions",
             "tie_embeddings",
             "embedding_norm",
             "final_norm",
             "embedding_multiplier",
             "residual_multiplier",
             "logit_multiplier",
             "logit_cap",
             "bos_token_id",
             "eos_token_ids",
             "pad_token_id",
             "mask_token_id",
             "head",
             "layer_input",
             "add_bos",
             "n_encoder_layers",
             "n_predictions",
             "raw_predictions",
             "source_length",
             "encoder_norm",
             "start_token_id",
             "forced_token_id",
             "layer_defaults",
             "layers",
             "precision",
             "tokenizer"});
  node.at("layout_version").integer(1, 1);
  check(config->name.assign(node.string("name", "")));
  config->vocab_size = static_cast<int32_t>(node.at("vocab_size").integer(1, kBig));
  config->d_model = static_cast<int32_t>(node.at("d_model").integer(1, 1 << 20));
  config->context_length = static_cast<int32_t>(node.at("context_length").integer(1, kBig));
  read_norm(node.at("norm"), config);
  config->positions = value_of(node.at("positions"), kPositionKinds);
  config->tie_embeddings = node.boolean("tie_embeddings", false);
  config->second_positions = node.boolean("second_positions", false);
  config->embedding_norm = node.boolean("embedding_norm", false);
  config->final_norm = node.boolean("final_norm", true);
  config->embedding_multiplier = node.number("embedding_multiplier", 1);
  config->residual_multiplier = node.number("residual_multiplier", 1);
  config->logit_multiplier = node.number("logit_multiplier", 1);
  config->logit_cap = node.number("logit_cap", 0);
  config->n_predictions = static_cast<int32_t>(node.integer("n_predictions", 0, 0, 1));
  config->raw_predictions = node.boolean("raw_predictions", false);
  if (node.has("head")) read_head(node.at("head"), &config->head);
  if (node.has("layer_input")) read_layer_input(node.at("layer_input"), &config->layer_input);
  read_special_tokens(node, config);
  read_source(node, config);
}

// One entry of "layers": the change, and the layers it applies to.
struct LayerChange {
  Json patch;
  std::vector<bool> covers;  // (n_layers)
};

std::vector<bool> covered_layers(const JsonNode& index, int32_t n_layers) {
  std::vector<bool> covers(static_cast<size_t>(n_layers));
  const auto layer = [&](const JsonNode& n) {
    return static_cast<size_t>(n.integer(0, n_layers - 1));
  };
  if (index.value().is_object()) {
    index.only({"from", "step"});
    const auto step = static_cast<size_t>(index.integer("step", 1, 1, n_layers));
    for (size_t l = layer(index.at("from")); l < covers.size(); l += step) covers[l] = true;
  } else if (index.value().is_array()) {
    for (const JsonNode& element : index.elements()) covers[layer(element)] = true;
  } else {
    covers[layer(index)] = true;
  }
  return covers;
}

std::vector<LayerChange> read_changes(const JsonNode& node, int32_t n_layers) {
  std::vector<LayerChange> changes;
  if (!node.has("layers")) return changes;
  for (const JsonNode& entry : node.at("layers").elements()) {
    entry.only({"index", "attention", "mixer", "cross_attention", "ffn", "multiplier"});
    changes.push_back({entry.value(), covered_layers(entry.at("index"), n_layers)});
    changes.back().patch.erase("index");
    changes.back().patch.erase("comment");
  }
  return changes;
}

// Each layer is the defaults merged with every change that applies (RFC 7396: null removes a key).
void read_layers(const JsonNode& node, Imported* out) {
  const auto n_layers = static_cast<int32_t>(node.at("n_layers").integer(1, kMaxLayers));
  const std::vector<LayerChange> changes = read_changes(node, n_layers);
  Json defaults = Json::object();
  if (node.has("layer_defaults")) {
    node.at("layer_defaults").only({"attention", "mixer", "cross_attention", "ffn", "multiplier"});
    defaults = node.at("layer_defaults").value();
  }
  for (int32_t l = 0; l < n_layers; ++l) {
    Json merged = defaults;
    for (const LayerChange& change : changes) {
      if (change.covers[static_cast<size_t>(l)]) merged.merge_patch(change.patch);
    }
    const JsonNode layer(merged, "config.json: layer " + std::to_string(l));
    ResearchLayer read = read_research_layer(layer, out->config, &out->factors);
    check(out->config.layers.push(read.config));
    out->cosine_widths.push_back(read.cosine_width);
  }
}

FormatId format_of(const JsonNode& node) {
  std::vector<const char*> names;
  for (const WeightFormat& format : kWeightFormats) {
    if (format.can_round()) names.push_back(format.name);
  }
  return find_weight_format(names[node.choice(names)])->id;
}

PrecisionRule read_rule(const JsonNode& node) {
  node.only({"match", "weights", "activations"});
  PrecisionRule rule;
  rule.match = node.at("match").string();
  if (rule.match.empty() || rule.match.size() > kMaxRuleBytes) {
    node.at("match").fail_expected("a pattern of 1 to " + std::to_string(kMaxRuleBytes) + " bytes");
  }
  if (node.has("weights")) {
    rule.weights_auto = node.at("weights").value() == "auto";
    if (!rule.weights_auto) rule.weights = format_of(node.at("weights"));
  }
  if (node.has("activations")) {
    rule.activations = value_of(node.at("activations"), kActPrecisions);
  }
  return rule;
}

void read_tokenizer(const JsonNode& node, Imported* out) {
  if (!node.has("tokenizer")) return;
  const std::string name = node.at("tokenizer").string();
  if (name == "bytes") {
    out->tokenizer = TokenizerKind::kBytes;
    return;
  }
  const bool plain = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                     name.find('\0') == std::string::npos;
  if (!plain) {
    node.at("tokenizer").fail_expected("\"bytes\", null or the name of a file in the same folder");
  }
  out->tokenizer = TokenizerKind::kFile;
  out->tokenizer_file = name;
}

// If config.json lacks the width of a cosine router, the tensor gives it.
void find_cosine_widths(const Checkpoint& checkpoint, Imported* out) {
  for (size_t l = 0; l < out->config.layers.size(); ++l) {
    const FfnConfig& ffn = out->config.layers[l].ffn;
    if (ffn.kind != FfnKind::kMoe || router_info(ffn.moe.router).scores != RouterScores::kCosine) {
      continue;
    }
    if (out->cosine_widths[l] != 0) continue;
    const std::string name = "layers." + std::to_string(l) + ".moe.router.proj.weight";
    const SourceTensor* tensor = checkpoint.find(name);
    if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
    if (tensor->shape.size() != 2 || tensor->shape[0] < 1 || tensor->shape[0] > 1 << 20) {
      fail(MOE_ERR_SHAPE, "tensor %s: expected (d_e, d), file has %s", name.c_str(),
           shape_text(tensor->shape).c_str());
    }
    out->cosine_widths[l] = static_cast<int32_t>(tensor->shape[0]);
  }
}

Imported import_research(const JsonNode& config, const Checkpoint& checkpoint) {
  Imported out;
  read_model(config, &out.config);
  read_layers(config, &out);
  if (config.has("precision")) {
    const std::vector<JsonNode> rules = config.at("precision").elements();
    if (rules.size() > kMaxRules) {
      fail(MOE_ERR_FORMAT, "config.json: precision: %zu rules, at most %zu are accepted",
           rules.size(), kMaxRules);
    }
    for (const JsonNode& rule : rules) {
      out.precision.push_back(read_rule(rule));
    }
  }
  read_tokenizer(config, &out);
  find_cosine_widths(checkpoint, &out);
  // With a matrix that is the embedding, the bias is a part of its own in a model file.
  ModelConfig& c = out.config;
  c.head.tied_bias = c.tie_embeddings && !c.head.dense && c.n_outputs() > 0 &&
                     checkpoint.find("head.bias") != nullptr;
  if (c.n_predictions > 0) {
    out.predictions = {"layers." + std::to_string(c.n_main_layers()) + ".*"};
  }
  out.locate = [](const SlotGroup&, const Slot& slot) {
    return Source{.tensor = slot.name == "head.tied_bias" ? "head.bias" : slot.name};
  };
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"moe_research", import_research}};
  return kRows;
}

}  // namespace moe::arch::research
