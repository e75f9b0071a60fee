// SPDX-License-Identifier: MIT
#include "tests/golden/model_case.h"

#include <algorithm>
#include <cmath>

#include "quant/formats.h"
#include "src/convert/config_write.h"
#include "src/convert/weights/slot.h"

namespace moe::golden {

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text());
}

Activation activation_of(const std::string& name) {
  const std::pair<const char*, Activation> kinds[] = {
      {"gelu", Activation::kGelu},      {"gelu_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},      {"relu2", Activation::kRelu2},
      {"silu", Activation::kSilu},      {"swiglu", Activation::kSilu},
      {"relu2_glu", Activation::kRelu2}};
  for (const auto& [text, kind] : kinds) {
    if (name == text) return kind;
  }
  throw std::runtime_error("unknown activation " + name);
}

void add_network(const std::string& name, const Json& f, ModelCase& e, FfnConfig* ffn) {
  ffn->act.kind = activation_of(f.at("act"));
  ffn->gated = f.contains("w_gate");
  ffn->d_ff = tensor(f.at(ffn->gated ? "w_up" : "w1")).rows();
  if (ffn->gated) e.put_linear(name + "gate", f, "w_gate", "b_gate");
  e.put_linear(name + "up", f, ffn->gated ? "w_up" : "w1", ffn->gated ? "b_up" : "b1");
  e.put_linear(name + "down", f, ffn->gated ? "w_down" : "w2", ffn->gated ? "b_down" : "b2");
}

void add_experts(const std::string& layer, const Json& experts, ModelCase& e, FfnConfig* ffn) {
  ffn->kind = FfnKind::kMoe;
  ffn->moe.n_experts = static_cast<int32_t>(experts.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    const std::string name = layer + "moe.experts." + std::to_string(i) + ".";
    if (!experts[i].is_array()) {
      add_network(name, experts[i], e, ffn);
      continue;
    }
    ffn->moe.n_sublayers = static_cast<int32_t>(experts[i].size());
    for (size_t s = 0; s < experts[i].size(); ++s) {
      const std::string block = name + std::to_string(s) + ".";
      add_network(block, experts[i][s], e, ffn);
      e.put_linear(block + "norm", experts[i][s], "ln_weight", "ln_bias");
    }
  }
}

void add_layer(const LayerConfig& layer, int32_t width, ModelCase& e) {
  check(e.config.layers.push(layer));
  e.cosine_widths.push_back(width);
}

std::string next_layer(const ModelCase& e) {
  return "layers." + std::to_string(e.config.layers.size()) + ".";
}

void add_ffn(const std::string& layer, const Json& f, ModelCase& e, FfnConfig* ffn) {
  if (!f.contains("experts")) return add_network(layer + "ffn.", f, e, ffn);
  add_experts(layer, f.at("experts"), e, ffn);
  e.put(layer + "moe.router.weight", f, "w_router");
  ffn->moe.router.kind = RouterKind::kThreshold;
  ffn->moe.router.threshold = static_cast<float>(number(f.at("t")));
}

void add_projections(const std::string& name, const Json& attention, ModelCase& e) {
  for (const char* m : {"q", "k", "v", "o"}) {
    const std::string w = std::string("w_") + m, b = std::string("b_") + m;
    e.put_linear(name + m, attention, w.c_str(), b.c_str());
  }
}

void add_idle_block(ModelCase& e) {
  const std::string name = next_layer(e);
  const auto d = static_cast<size_t>(e.config.d_model);
  LayerConfig layer;
  layer.has_ffn = false;
  layer.attention.causal = false;
  layer.attention.norms.pre = false;
  layer.attention.n_heads = layer.attention.n_kv_heads = 1;
  layer.attention.head_dim = e.config.d_model;
  for (const char* m : {"q", "k", "v", "o"}) {
    const auto n = static_cast<int64_t>(d);
    e.tensors[name + "attention." + m + ".weight"] = {{n, n}, std::vector<double>(d * d)};
  }
  add_layer(layer, 0, e);
}

ModelCase begin(const Case& c, int32_t n_vocab, int32_t d) {
  ModelCase e;
  e.heads = c.integer("heads", 1);
  e.pre = c.text("norm", "post") == "pre";
  e.tau = static_cast<float>(c.real("tau", 0.3));
  e.config.vocab_size = n_vocab;
  e.config.d_model = d;
  e.config.norm = NormKind::kLayer;
  e.config.norm_eps = static_cast<float>(c.real("eps", 1e-5));
  e.config.positions = PositionKind::kNone;
  e.config.final_norm = false;
  e.config.head.kind = HeadKind::kNone;
  return e;
}

Tensor sinusoids(int32_t n, int32_t d) {
  Tensor t{{n, d}, std::vector<double>(static_cast<size_t>(n * d))};
  const int32_t half = d / 2;
  for (int32_t p = 0; p < n; ++p) {
    for (int32_t i = 0; i < half; ++i) {
      const double angle = p * std::exp(-std::log(10000.0) * i / (half - 1));
      t.data[static_cast<size_t>(p * d + i)] = std::sin(angle);
      t.data[static_cast<size_t>(p * d + half + i)] = std::cos(angle);
    }
  }
  return t;
}

Tensor from_row(const Tensor& t, int32_t first, int32_t d) {
  Tensor out{{t.rows() - first, d}, {}};
  for (int32_t r = first; r < t.rows(); ++r) {
    const auto row = t.data.begin() + int64_t{r} * t.cols();
    out.data.insert(out.data.end(), row, row + std::min(d, t.cols()));
  }
  return out;
}

namespace {

void write_segment(const ModelCase& e, const SlotGroup& group, ModelWriter* writer) {
  BlobLayout layout;
  std::vector<const Tensor*> values;
  for (const Slot& slot : group.slots) {
    const auto found = e.tensors.find(slot.name);
    if (found == e.tensors.end()) {
      if (slot.optional) continue;
      throw std::runtime_error("tensor " + slot.name + " is missing");
    }
    BlobMatrix m;
    m.role = slot.role;
    m.sublayer = slot.sublayer;
    const Tensor& t = found->second;  // the library checks its shape
    m.rows = t.rows();
    m.cols = t.shape.size() > 1 ? t.cols() : 1;
    check(layout.matrices.push(m));
    values.push_back(&found->second);
  }
  check(place(&layout));
  std::vector<uint8_t> blob(layout.bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const BlobMatrix& m = layout.matrices[i];
    const std::vector<float> floats = values[i]->floats();
    for (int32_t row = 0; row < m.rows; row += kTileRows) {
      format_info(m.format).pack_values(
          floats.data() + int64_t{row} * m.cols, m.cols, std::min(kTileRows, m.rows - row), m.cols,
          blob.data() + m.offset + static_cast<uint64_t>(row / kTileRows) * m.tile_stride);
    }
  }
  check(writer->write_segment({group.part, group.layer, group.expert}, layout, blob.data()));
}

}  // namespace

void write_model(const ModelCase& e, MemorySink* sink) {
  ModelWriter writer(*sink, false);
  for (const SlotGroup& group : list_slots(e.config, e.cosine_widths)) {
    write_segment(e, group, &writer);
  }
  check(finish_model(writer, e.config, {}, {}));
}

}  // namespace moe::golden
