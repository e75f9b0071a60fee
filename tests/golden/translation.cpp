// SPDX-License-Identifier: MIT
// Encoder-decoders and beam search.

#include <algorithm>
#include <cmath>

#include "formats/moe/reader.h"
#include "src/run/translate.h"
#include "tests/golden/model_case.h"

namespace moe::golden {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

BeamOptions beam_options(const Case& c) {
  BeamOptions o;
  o.beam = c.integer("beam", 5);
  o.n_best = c.integer("nbest", 1);
  o.min_tokens = c.integer("min_len", 1);
  o.max_tokens = c.integer("max_len", 0);
  o.length_penalty = static_cast<float>(c.real("alpha", 1));
  o.stop = c.text("stop", "count") == "bound" ? BeamStop::kBound : BeamStop::kCount;
  return o;
}

Json scores_json(const std::vector<float>& scores) {
  return to_json(scores, {static_cast<int64_t>(scores.size())});
}

/// A language model as a table: the logits after a text depend on its last token, or its last two.
class Table {
 public:
  explicit Table(const Tensor& t)
      : n_(static_cast<size_t>(t.width())), two_(t.shape.size() == 3), values_(t.floats()) {}
  std::span<const float> after(const std::vector<int32_t>& text) const {
    const auto last = static_cast<size_t>(text.back());
    const auto before = static_cast<size_t>(text[text.size() < 2 ? 0 : text.size() - 2]);
    return {values_.data() + (two_ ? before * n_ + last : last) * n_, n_};
  }

 private:
  size_t n_;
  bool two_;
  std::vector<float> values_;
};

Status search(BeamSearch& beam, const Table& table, int32_t start) {
  Texts texts = {{start}};
  while (!beam.done()) {
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      MOE_TRY(beam.offer(j, table.after(texts[static_cast<size_t>(j)])));
    }
    MOE_TRY(beam.end_step());
    Texts next;
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      next.push_back(texts[static_cast<size_t>(beam.parent(j))]);
      next.back().push_back(beam.token(j));
    }
    texts = std::move(next);
  }
  return {};
}

void put_results(const BeamSearch& beam, Outcome& outcome) {
  Texts tokens;
  std::vector<float> scores;
  for (int32_t i = 0; i < beam.n_results(); ++i) {
    tokens.emplace_back(static_cast<size_t>(beam.n_tokens(i)));
    beam.read(i, tokens.back().data());
    scores.push_back(beam.score(i));
  }
  outcome.out["tokens"] = tokens;
  outcome.out["scores"] = scores_json(scores);
}

Status run_search(const Case& c, BeamSearch& beam) {
  const int32_t eos = c.integer("eos", 0);
  MOE_TRY(beam.begin(beam_options(c), {{&eos, 1}, {}, c.integer("pad", -1)}));
  return search(beam, Table(c.in_tensor("table")), c.integer("start", 0));
}

void run_beam(const Case& c, Devices&, Outcome& outcome) {
  BeamSearch beam(system_allocator());
  outcome.status = run_search(c, beam);
  if (outcome.status.ok()) put_results(beam, outcome);
}

// Appends rows and columns of zeros to a matrix.
Tensor widened(const Tensor& t, int32_t more_rows, int32_t more_cols) {
  Tensor out{{t.rows() + more_rows, t.cols() + more_cols}, {}};
  for (int32_t r = 0; r < out.rows(); ++r) {
    for (int32_t c = 0; c < out.cols(); ++c) {
      const bool inside = r < t.rows() && c < t.cols();
      out.data.push_back(inside ? t.data[static_cast<size_t>(r * t.cols() + c)] : 0);
    }
  }
  return out;
}

/// An encoder-decoder and its input: the ids without padding, and the indices of the source ids.
struct Pair {
  ModelCase model;
  std::vector<int32_t> source, target;
  std::vector<size_t> source_rows;
  size_t n_source_rows = 0;

  Json spread(const std::vector<float>& rows, size_t width) const {
    std::vector<float> out(n_source_rows * width);
    for (size_t i = 0; i < source_rows.size() && !rows.empty(); ++i) {
      std::copy_n(rows.begin() + static_cast<int64_t>(i * width), width,
                  out.begin() + static_cast<int64_t>(source_rows[i] * width));
    }
    return to_json(out, {static_cast<int64_t>(n_source_rows), static_cast<int64_t>(width)});
  }
};

void begin_pair(int32_t eos, Pair& p) {
  ModelConfig& config = p.model.config;
  config.head.kind = HeadKind::kTokens;
  config.tie_embeddings = true;
  config.start_token_id = eos;
  check(config.eos_token_ids.push(eos));
}

LayerConfig begin_layer(const ModelCase& m, bool causal) {
  LayerConfig layer;
  layer.attention.causal = causal;
  layer.attention.norms = layer.cross.norms = layer.ffn.norms = {m.pre, false, !m.pre};
  return layer;
}

void set_heads(const Json& attention, const ModelCase& m, AttentionConfig* a) {
  a->n_heads = a->n_kv_heads = m.heads;
  a->head_dim = tensor(attention.at("w_q")).rows() / m.heads;
}

void add_attention(const std::string& name, const Json& attention, ModelCase& m,
                   AttentionConfig* a) {
  add_projections(name + "attention.", attention, m);
  set_heads(attention, m, a);
}

void add_encoder_layer(const Json& in, ModelCase& m) {
  const std::string name = next_layer(m), norm = m.pre ? "_norm" : "_post_norm";
  LayerConfig layer = begin_layer(m, false);
  add_attention(name, in.at("attn"), m, &layer.attention);
  m.put_norm(name + "attention" + norm, in.at("ln1"));
  m.put_norm(name + "ffn" + norm, in.at("ln2"));
  add_ffn(name, in.at("ffn"), m, &layer.ffn);
  add_layer(layer, 0, m);
}

// `narrow`: the columns by which the memory is narrower than the model.
void add_cross(const std::string& name, const Json& attention, int32_t narrow, ModelCase& m,
               LayerConfig* layer) {
  layer->has_cross = true;
  layer->cross.causal = false;
  add_attention(name + "cross_", attention, m, &layer->cross);
  for (const char* matrix : {"k", "v"}) {
    Tensor& w = m.tensors.at(name + "cross_attention." + matrix + ".weight");
    w = widened(w, 0, narrow);
  }
}

void add_decoder_layer(const Json& in, int32_t narrow, ModelCase& m) {
  const std::string name = next_layer(m), norm = m.pre ? "_norm" : "_post_norm";
  LayerConfig layer = begin_layer(m, true);
  add_attention(name, in.at("attn"), m, &layer.attention);
  add_cross(name, in.at("cross"), narrow, m, &layer);
  m.put_norm(name + "attention" + norm, in.at("ln1"));
  m.put_norm(name + "cross_attention" + norm, in.at("ln2"));
  m.put_norm(name + "ffn" + norm, in.at("ln3"));
  add_ffn(name, in.at("ffn"), m, &layer.ffn);
  add_layer(layer, 0, m);
}

/// A model whose embedding consists of the rows of x and of the memory, and whose encoder changes
/// nothing.
Pair pair_of_rows(const Case& c) {
  const Tensor x = c.in_tensor("x"), memory = c.in_tensor("memory");
  const int32_t width = std::max(x.cols(), memory.cols());
  Pair p;
  p.model = begin(c, x.rows() + memory.rows(), width);
  begin_pair(0, p);
  Tensor rows = widened(x, 0, width - x.cols());
  const Tensor more = widened(memory, 0, width - memory.cols());
  rows.shape[0] += memory.rows();
  rows.data.insert(rows.data.end(), more.data.begin(), more.data.end());
  p.model.tensors["embedding.weight"] = rows;
  p.model.config.context_length = x.rows();
  p.model.config.source_length = memory.rows();
  p.model.config.n_encoder_layers = 1;
  add_idle_block(p.model);
  for (int32_t r = 0; r < x.rows(); ++r) p.target.push_back(r);
  const std::vector<float> mask = c.has("mask") ? c.in_floats("mask") : std::vector<float>();
  for (int32_t r = 0; r < memory.rows(); ++r) {
    if (mask.empty() || mask[static_cast<size_t>(r)] != 0) p.source.push_back(x.rows() + r);
  }
  return p;
}

// A position table without the rows up to the padding id, as the converter stores it.
Tensor positions(const Json& model, const char* key, int32_t pad, int32_t d) {
  const bool learned = model.contains(key) && !model.at(key).is_null();
  const Tensor all = learned ? tensor(model.at(key)) : sinusoids(pad + 1 + kSinusoids, d);
  return from_row(all, pad + 1, d);
}

void put_final_norm(const Json& model, const char* key, const char* name, bool* has, ModelCase& m) {
  *has = model.contains(key) && !model.at(key).is_null();
  if (*has) m.put_norm(name, model.at(key));
}

Pair pair_of_model(const Case& c) {
  const Json& model = c.in.at("model");
  const Tensor tok = tensor(model.at("tok"));
  const int32_t pad = c.integer("pad", 1), d = tok.cols();
  Pair p;
  p.model = begin(c, tok.rows(), d);
  begin_pair(c.integer("eos", 2), p);
  ModelConfig& config = p.model.config;
  config.pad_token_id = pad;
  config.positions = PositionKind::kLearned;
  if (c.flag("scale_embed", true)) {
    config.embedding_multiplier = static_cast<float>(std::sqrt(static_cast<double>(d)));
  }
  p.model.tensors["embedding.weight"] = tok;
  const Tensor& source = p.model.tensors["source_position_embedding.weight"] =
      positions(model, "pos_source", pad, d);
  const Tensor& target = p.model.tensors["position_embedding.weight"] =
      positions(model, "pos_target", pad, d);
  config.source_length = source.rows();
  config.context_length = target.rows();
  config.n_encoder_layers = static_cast<int32_t>(model.at("encoder").size());
  for (const Json& layer : model.at("encoder")) add_encoder_layer(layer, p.model);
  for (const Json& layer : model.at("decoder")) add_decoder_layer(layer, 0, p.model);
  put_final_norm(model, "ln_encoder", "encoder_norm", &config.encoder_norm, p.model);
  put_final_norm(model, "ln_decoder", "final_norm", &config.final_norm, p.model);
  const std::vector<float> ids = c.in_floats("source");
  p.n_source_rows = ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<int32_t>(ids[i]) == pad) continue;
    p.source.push_back(static_cast<int32_t>(ids[i]));
    p.source_rows.push_back(i);
  }
  if (c.has("target")) {
    for (const float id : c.in_floats("target")) p.target.push_back(static_cast<int32_t>(id));
  }
  return p;
}

/// Runs f(session) on every device; the results must have the same bits.
template <class F>
void on_sessions(const Pair& p, int32_t max_beam, Devices& devices, Outcome& outcome, F&& f) {
  MemorySink sink;
  write_model(p.model, &sink);
  const Allocator& allocator = system_allocator();
  const auto run = [&](Device& device, std::vector<float>* found) -> Status {
    MOE_ASSIGN(Box<MoeFile> file,
               MoeFile::open(FileSource::from_memory(sink.data(), sink.size()), allocator));
    MOE_ASSIGN(Box<Model> model, Model::open(std::move(file), {}, device, Logger(), allocator));
    SessionOptions options;
    options.kv = KvType::kF32;
    options.max_beam = max_beam;
    MOE_ASSIGN(Box<Session> session, Session::create(*model, options, allocator));
    return f(*session, found);
  };
  (void)same_on_all(devices.all(), outcome, [&](Device& device) {
    std::vector<float> found = {0};  // never empty
    outcome.status = run(device, &found);
    if (outcome.status.code() == MOE_ERR_TOO_LONG) {  // the cases call this a range error
      outcome.status = Status::error(MOE_ERR_RANGE, "%s", outcome.status.text());
    }
    return outcome.status.ok() ? found : std::vector<float>{0};
  });
}

// The decoder's states for the target. Evaluates the second half again after the first half, which
// must give the same bits.
Status decode(Session& session, const Pair& p, std::vector<float>* out) {
  const std::span<const int32_t> target(p.target);
  MOE_TRY(read_source(session, p.source));
  out->resize(p.target.size() * static_cast<size_t>(p.model.config.d_model));
  Encoding all;
  all.hidden = out->data();
  MOE_TRY(session.encode(target, all));
  const size_t half = target.size() / 2;
  MOE_TRY(session.eval(target.first(half), LogitRows::kNone, nullptr));
  std::vector<float> rest((target.size() - half) * static_cast<size_t>(p.model.config.d_model));
  all.hidden = rest.data();
  MOE_TRY(session.encode(target.subspan(half), all));
  const bool same = std::equal(rest.rbegin(), rest.rend(), out->rbegin());
  return same ? Status() : Status::error(MOE_ERR_INTERNAL, "two calls give other bits");
}

void run_decoder(const Pair& p, const Case& c, Devices& devices, Outcome& outcome, float less) {
  const Tensor x = c.in_tensor("x");
  std::vector<float> rows;
  on_sessions(p, 1, devices, outcome, [&](Session& session, std::vector<float>* out) {
    const Status status = decode(session, p, out);
    rows = *out;
    return status;
  });
  if (!outcome.status.ok()) return;
  std::vector<float> y;
  for (int32_t r = 0; r < x.rows(); ++r) {
    for (int32_t i = 0; i < x.cols(); ++i) {
      const float residual = static_cast<float>(x.data[static_cast<size_t>(r * x.cols() + i)]);
      y.push_back(rows[static_cast<size_t>(r * p.model.config.d_model + i)] - less * residual);
    }
  }
  outcome.out["y"] = to_json(y, x.shape);
}

// A layer adds its output to the residual stream; the input is subtracted again.
void run_cross(const Case& c, Devices& devices, Outcome& outcome) {
  Pair p = pair_of_rows(c);
  const int32_t width = p.model.config.d_model;
  const int32_t narrow_x = width - c.in_tensor("x").cols();
  LayerConfig layer;
  layer.has_attention = layer.has_ffn = false;
  layer.cross.norms.pre = false;
  add_cross("layers.1.", c.in.at("attn"), width - c.in_tensor("memory").cols(), p.model, &layer);
  Tensor& q = p.model.tensors.at("layers.1.cross_attention.q.weight");
  Tensor& o = p.model.tensors.at("layers.1.cross_attention.o.weight");
  q = widened(q, 0, narrow_x);
  o = widened(o, narrow_x, 0);
  const auto bias = p.model.tensors.find("layers.1.cross_attention.o.bias");
  if (bias != p.model.tensors.end()) {
    bias->second.shape[0] += narrow_x;
    bias->second.data.resize(bias->second.data.size() + static_cast<size_t>(narrow_x));
  }
  add_layer(layer, 0, p.model);
  run_decoder(p, c, devices, outcome, 1);
}

void run_decoder_layer(const Case& c, Devices& devices, Outcome& outcome) {
  Pair p = pair_of_rows(c);
  const int32_t narrow = p.model.config.d_model - c.in_tensor("memory").cols();
  add_decoder_layer(c.in.at("layer"), narrow, p.model);
  run_decoder(p, c, devices, outcome, 0);
}

void run_encoder_decoder(const Case& c, Devices& devices, Outcome& outcome) {
  const Pair p = pair_of_model(c);
  const auto d = static_cast<size_t>(p.model.config.d_model);
  const auto vocab = static_cast<size_t>(p.model.config.vocab_size);
  std::vector<float> memory(p.source.size() * d), logits(p.target.size() * vocab);
  on_sessions(p, 1, devices, outcome, [&](Session& session, std::vector<float>* out) -> Status {
    MOE_TRY(read_source(session, p.source, memory.data()));
    MOE_TRY(session.eval(p.target, LogitRows::kAll, logits.data()));
    *out = memory;
    out->insert(out->end(), logits.begin(), logits.end());
    return {};
  });
  if (!outcome.status.ok()) return;
  outcome.out["memory"] = p.spread(memory, d);
  outcome.out["logits"] =
      to_json(logits, {static_cast<int64_t>(p.target.size()), static_cast<int64_t>(vocab)});
}

void run_translate(const Case& c, Devices& devices, Outcome& outcome) {
  const Pair p = pair_of_model(c);
  TranslateOptions options;
  options.search = beam_options(c);
  const int32_t max_beam = std::clamp(options.search.beam, 1, kMaxBeam);
  Translations found(system_allocator());
  on_sessions(p, max_beam, devices, outcome, [&](Session& session, std::vector<float>* out) {
    const Status status = translate(session, p.source, options, &found);
    out->assign(found.tokens.begin(), found.tokens.end());
    for (const Translations::Text& text : found.texts) out->push_back(text.score);
    return status;
  });
  if (!outcome.status.ok()) return;
  Texts tokens;
  std::vector<float> scores;
  for (const Translations::Text& text : found.texts) {
    tokens.emplace_back(text.tokens, text.tokens + text.n_tokens);
    scores.push_back(text.score);
  }
  outcome.out["tokens"] = tokens;
  outcome.out["scores"] = scores_json(scores);
}

}  // namespace

void add_translation(Runners& runners) {
  runners["beam_search"] = run_beam;
  runners["cross_attention"] = run_cross;
  runners["decoder_layer"] = run_decoder_layer;
  runners["encoder_decoder"] = run_encoder_decoder;
  runners["translate"] = run_translate;
}

}  // namespace moe::golden
