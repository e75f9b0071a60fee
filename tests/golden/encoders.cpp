// SPDX-License-Identifier: MIT
// Encoders: each case is made into a model in memory, which a session runs.

#include <algorithm>

#include "formats/moe/reader.h"
#include "src/run/session.h"
#include "tests/golden/model_case.h"
#include "tests/golden/routing.h"

namespace moe::golden {
namespace {

// A layer of X-MoE: experts without attention. `limits` is the case with its capacity, if it has
// one.
void add_sparse(const Json& in, const std::string& gating, int32_t k, ModelCase& e,
                const Case* limits = nullptr) {
  const std::string name = next_layer(e);
  LayerConfig layer;
  layer.has_attention = false;
  layer.ffn.norms.pre = in.contains("ln") && !in.at("ln").is_null();
  if (layer.ffn.norms.pre) e.put_norm(name + "ffn_norm", in.at("ln"));
  add_experts(name, in.at("experts"), e, &layer.ffn);
  const Json& r = in.at("router");
  RouterConfig& router = layer.ffn.moe.router;
  router.k = k;
  if (limits != nullptr) set_arrival_capacity(*limits, router);
  int32_t width = 0;
  if (r.contains("proj")) {
    router.kind = RouterKind::kCosine;
    router.tau = e.tau;
    router.gate = gating == "sigmoid" ? CosineGate::kSigmoid : CosineGate::kSoftmax;
    e.put_linear(name + "moe.router.proj", r, "proj", "proj_bias");
    e.put(name + "moe.router.embedding.weight", r, "embeddings");
    width = tensor(r.at("proj")).rows();
  } else {
    router.kind = gating == "sigmoid" ? RouterKind::kSigmoid : RouterKind::kSoftmax;
    router.weights = gating != "sigmoid" && k > 1 ? RouterWeights::kChosen : RouterWeights::kRaw;
    e.put(name + "moe.router.weight", r, "w");
  }
  add_layer(layer, width, e);
}

void add_block(const Json& in, ModelCase& e) {
  if (!in.contains("attn"))
    return add_sparse(in, in.value("gating", "softmax"), in.value("k", 1), e);
  const std::string name = next_layer(e);
  const char* norm = e.pre ? "_norm" : "_post_norm";
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.causal = false;
  a.norms = layer.ffn.norms = {.pre = e.pre, .out = false, .post = !e.pre};
  a.n_heads = a.n_kv_heads = e.heads;
  a.head_dim = tensor(in.at("attn").at("w_q")).rows() / e.heads;
  add_projections(name + "attention.", in.at("attn"), e);
  e.put_norm(name + "attention" + norm, in.at("ln1"));
  e.put_norm(name + "ffn" + norm, in.at("ln2"));
  add_ffn(name, in.at("ffn"), e, &layer.ffn);
  add_layer(layer, 0, e);
}

/// The rows of x are the embedding, so that token t is row t; rows of padding are not run.
struct Rows {
  Tensor x;
  std::vector<int32_t> real;
  explicit Rows(const Case& c) : x(c.in_tensor("x")) {
    const std::vector<float> mask = c.has("mask") ? c.in_floats("mask") : std::vector<float>();
    for (int32_t r = 0; r < x.rows(); ++r) {
      if (mask.empty() || mask[static_cast<size_t>(r)] != 0) real.push_back(r);
    }
  }
  ModelCase begin(const Case& c) const {
    ModelCase e = golden::begin(c, x.rows(), x.cols());
    e.tensors["embedding.weight"] = x;
    e.config.context_length = x.rows();
    return e;
  }
  /// Puts the computed rows in the places of the real rows, and `otherwise` in the others.
  template <class T>
  Json spread(const std::vector<T>& rows, int64_t width, T otherwise) const {
    std::vector<T> out(static_cast<size_t>(x.rows() * width), otherwise);
    for (size_t i = 0; i < real.size(); ++i) {
      std::copy_n(rows.begin() + static_cast<int64_t>(i) * width, width,
                  out.begin() + real[i] * width);
    }
    return to_json(out, {x.rows(), width});
  }
};

struct Encoded {
  std::vector<float> hidden, pooled, outputs;
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

void keep_routing(void* user, const RoutedTokens&, Routing* routing) {
  Encoded& out = *static_cast<Encoded*>(user);
  const int32_t n = routing->n_tokens * routing->max_k;
  out.experts.insert(out.experts.end(), routing->expert, routing->expert + n);
  out.weights.insert(out.weights.end(), routing->weight, routing->weight + n);
}

Status run_session(Device& device, const MemorySink& bytes, const std::vector<int32_t>& tokens,
                   Pooling pooling, Encoded* out) {
  const Allocator& allocator = system_allocator();
  MOE_ASSIGN(Box<MoeFile> file,
             MoeFile::open(FileSource::from_memory(bytes.data(), bytes.size()), allocator));
  MOE_ASSIGN(Box<Model> model, Model::open(std::move(file), {}, device, Logger(), allocator));
  MOE_ASSIGN(Box<Session> session, Session::create(*model, {}, allocator));
  MOE_TRY(session->set_routing_hook({keep_routing, out}));
  const ModelConfig& config = model->config();
  const size_t rows = config.head.kind == HeadKind::kClasses ? 1 : tokens.size();
  out->hidden.resize(tokens.size() * static_cast<size_t>(config.d_model));
  out->pooled.resize(static_cast<size_t>(config.d_model));
  out->outputs.resize(rows * static_cast<size_t>(config.n_outputs()));
  Encoding encoding;
  encoding.hidden = out->hidden.data();
  encoding.pooled = out->pooled.data();
  encoding.pooling = pooling;
  if (config.n_outputs() > 0) encoding.outputs = out->outputs.data();
  return session->encode({tokens.data(), tokens.size()}, encoding);
}

Encoded run(const ModelCase& e, const std::vector<int32_t>& tokens, Devices& devices,
            Outcome& outcome, Pooling pooling = Pooling::kMean) {
  MemorySink sink;
  write_model(e, &sink);
  Encoded last;
  (void)same_on_all(devices.all(), outcome, [&](Device& device) {
    last = {};
    outcome.status = run_session(device, sink, tokens, pooling, &last);
    std::vector<float> all = last.hidden;
    all.insert(all.end(), last.outputs.begin(), last.outputs.end());
    all.insert(all.end(), last.pooled.begin(), last.pooled.end());
    return outcome.status.ok() ? all : std::vector<float>{0};
  });
  return last;
}

void run_layer_case(const Case& c, Devices& devices, Outcome& outcome) {
  const Rows rows(c);
  ModelCase e = rows.begin(c);
  add_block(c.in.at("layer"), e);
  const Encoded out = run(e, rows.real, devices, outcome);
  if (outcome.status.ok()) outcome.out["y"] = rows.spread(out.hidden, rows.x.cols(), 0.0f);
}

void run_sparse(const Case& c, Devices& devices, Outcome& outcome) {
  const Rows rows(c);
  ModelCase e = rows.begin(c);
  const int32_t k = c.integer("k", 1);
  add_idle_block(e);
  add_sparse(c.in, c.text("gating", "softmax"), k, e, &c);
  const Encoded out = run(e, rows.real, devices, outcome);
  if (!outcome.status.ok()) return;
  outcome.out["y"] = rows.spread(out.hidden, rows.x.cols(), 0.0f);
  outcome.out["indices"] = rows.spread(out.experts, k, -1);
  outcome.out["weights"] = rows.spread(out.weights, k, 0.0f);
}

// The embedding and the position table, whose rows up to the padding id are left out, as the
// converter does. The token type is added to the positions.
void add_embedding(const Json& in, int32_t pad, ModelCase& e) {
  e.tensors["embedding.weight"] = tensor(in.at("tok"));
  e.config.positions = PositionKind::kLearned;
  Tensor& p = e.tensors["position_embedding.weight"];
  const bool learned = in.contains("pos") && !in.at("pos").is_null();
  p = learned ? tensor(in.at("pos")) : sinusoids(pad + 1 + kSinusoids, e.config.d_model);
  p = from_row(p, pad + 1, e.config.d_model);
  e.config.context_length = p.rows();
  if (in.contains("token_type") && !in.at("token_type").is_null()) {
    const Tensor type = tensor(in.at("token_type"));
    for (size_t i = 0; i < p.data.size(); ++i) p.data[i] += type.data[i % type.data.size()];
  }
  e.config.embedding_norm = in.contains("ln") && !in.at("ln").is_null();
  if (e.config.embedding_norm) e.put_norm("embedding_norm", in.at("ln"));
}

/// The ids other than padding, and their indices.
struct Ids {
  std::vector<int32_t> real;
  std::vector<size_t> at;
  size_t n;
  Ids(const Case& c, int32_t pad) : n(c.in_floats("ids").size()) {
    const std::vector<float> ids = c.in_floats("ids");
    for (size_t i = 0; i < n; ++i) {
      if (static_cast<int32_t>(ids[i]) == pad) continue;
      real.push_back(static_cast<int32_t>(ids[i]));
      at.push_back(i);
    }
  }
  Json spread(const std::vector<float>& rows, size_t width) const {
    std::vector<float> out(n * width);
    for (size_t i = 0; i < at.size(); ++i) {
      std::copy_n(rows.begin() + static_cast<int64_t>(i * width), width,
                  out.begin() + static_cast<int64_t>(at[i] * width));
    }
    return to_json(out, {static_cast<int64_t>(n), static_cast<int64_t>(width)});
  }
};

void run_embedding(const Case& c, Devices& devices, Outcome& outcome) {
  const int32_t pad = c.integer("pad", 1);
  const Tensor tok = c.in_tensor("tok");
  const Ids ids(c, pad);
  ModelCase e = begin(c, tok.rows(), tok.cols());
  e.config.embedding_multiplier = static_cast<float>(c.real("scale", 1));
  add_embedding(c.in, pad, e);
  add_idle_block(e);
  const Encoded out = run(e, ids.real, devices, outcome);
  if (outcome.status.code() == MOE_ERR_TOO_LONG) {  // the cases call this a range error
    outcome.status = Status::error(MOE_ERR_RANGE, "%s", outcome.status.text());
  }
  if (!outcome.status.ok()) return;
  std::vector<int32_t> positions(ids.n, pad);
  for (size_t i = 0; i < ids.at.size(); ++i) {
    positions[ids.at[i]] = pad + 1 + static_cast<int32_t>(i);
  }
  outcome.out["positions"] = to_json(positions, {static_cast<int64_t>(ids.n)});
  outcome.out["y"] = ids.spread(out.hidden, static_cast<size_t>(tok.cols()));
}

void add_token_head(const Json& head, const char* act, const Json& bias, ModelCase& e) {
  e.config.head = {HeadKind::kTokens, 0, true, true, activation_of(act)};
  e.put_linear("head.dense", head, "w", "b");
  e.put_norm("head.norm", head.at("ln"));
  e.tensors["head.bias"] = tensor(bias);
}

void run_token_head(const Case& c, Devices& devices, Outcome& outcome) {
  const Rows rows(c);
  ModelCase e = rows.begin(c);
  // The head has a table of its own, since the rows of x are the embedding.
  const Tensor embed = c.in_tensor("embed");
  e.config.vocab_size = std::max(embed.rows(), rows.x.rows());
  Tensor head = embed, padded = rows.x;
  head.shape[0] = padded.shape[0] = e.config.vocab_size;
  head.data.resize(static_cast<size_t>(e.config.vocab_size * embed.cols()));
  padded.data.resize(head.data.size());
  Tensor bias = c.in_tensor("bias");
  bias.shape[0] = e.config.vocab_size;
  bias.data.resize(static_cast<size_t>(e.config.vocab_size));
  add_token_head(c.in.at("head"), c.text("act", "gelu").c_str(), c.in.at("bias"), e);
  e.tensors["embedding.weight"] = padded;
  e.tensors["head.weight"] = head;
  e.tensors["head.bias"] = bias;
  add_idle_block(e);
  const Encoded out = run(e, rows.real, devices, outcome);
  if (!outcome.status.ok()) return;
  std::vector<float> y;
  for (int32_t r = 0; r < rows.x.rows(); ++r) {
    const auto from = out.outputs.begin() + r * e.config.vocab_size;
    y.insert(y.end(), from, from + embed.rows());
  }
  outcome.out["y"] = to_json(y, {rows.x.rows(), embed.rows()});
}

void run_pool(const Case& c, Devices& devices, Outcome& outcome) {
  const Rows rows(c);
  ModelCase e = rows.begin(c);
  add_idle_block(e);
  const Pooling pooling = c.text("kind", "mean") == "first" ? Pooling::kFirst : Pooling::kMean;
  const Encoded out = run(e, rows.real, devices, outcome, pooling);
  if (outcome.status.ok()) outcome.out["y"] = to_json(out.pooled, {rows.x.cols()});
}

void run_classification(const Case& c, Devices& devices, Outcome& outcome) {
  const Rows rows(c);
  ModelCase e = rows.begin(c);
  add_idle_block(e);
  const Json& head = c.in.at("head");
  e.config.head = {HeadKind::kClasses, tensor(head.at("w_out")).rows(), true, false,
                   Activation::kTanh};
  e.put_linear("head.dense", head, "w", "b");
  e.put_linear("head", head, "w_out", "b_out");
  const Encoded out = run(e, rows.real, devices, outcome);
  if (outcome.status.ok()) outcome.out["y"] = to_json(out.outputs, {e.config.head.n_labels});
}

void run_model(const Case& c, Devices& devices, Outcome& outcome) {
  const int32_t pad = c.integer("pad", 1);
  const Json& embed = c.in.at("embed");
  const Tensor tok = tensor(embed.at("tok"));
  const Ids ids(c, pad);
  ModelCase e = begin(c, tok.rows(), tok.cols());
  add_embedding(embed, pad, e);
  for (const Json& block : c.in.at("layers")) add_block(block, e);
  if (c.has("ln_final")) {
    e.config.final_norm = true;
    e.put_norm("final_norm", c.in.at("ln_final"));
  }
  const Json& head = c.in.at("head");
  add_token_head(head, c.text("act", "gelu").c_str(), head.at("bias"), e);
  e.config.tie_embeddings = true;
  const Encoded out = run(e, ids.real, devices, outcome);
  if (!outcome.status.ok()) return;
  outcome.out["hidden"] = ids.spread(out.hidden, static_cast<size_t>(tok.cols()));
  outcome.out["logits"] = ids.spread(out.outputs, static_cast<size_t>(tok.rows()));
}

}  // namespace

void add_encoders(Runners& runners) {
  runners["encoder_layer"] = run_layer_case;
  runners["sparse_layer"] = run_sparse;
  runners["embed_tokens"] = run_embedding;
  runners["mlm_head"] = run_token_head;
  runners["pool"] = run_pool;
  runners["classification_head"] = run_classification;
  runners["encoder_model"] = run_model;
}

}  // namespace moe::golden
