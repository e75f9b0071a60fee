// SPDX-License-Identifier: MIT
// Sessions on damaged model files, through the C API: a model that opens must evaluate, sample,
// generate and route within its limits, or return an error. The input is a model (fuzz_model.h),
// the way to open it, then steps until it ends.

#include <cmath>

#include "src/c_api/handles.h"
#include "tests/run/fuzz_model.h"
#include "tests/support/fuzz_env.h"

namespace moe {
namespace {

/// A file of which one read fails.
struct Storage {
  FuzzFile* file;
  size_t good_reads;

  static bool read(void* user, uint64_t offset, void* buffer, size_t bytes) {
    auto* s = static_cast<Storage*>(user);
    require(bytes <= s->file->size() && offset <= s->file->size() - bytes);
    if (s->good_reads-- == 0) return false;
    std::memcpy(buffer, s->file->data() + offset, bytes);
    return true;
  }
};

class Steps {
 public:
  Steps(FuzzBytes& in, moe_model* model) : in_(in), model_(model) {
    info_.struct_size = sizeof info_;
    require(moe_model_get_info(model, &info_, nullptr) == MOE_OK);
    look();
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps() {
    moe_session_free(session_);
    moe_session_free(other_);
  }

  void run() {
    open(&session_);
    for (int i = 0; i < 16 && session_ != nullptr && (i < 4 || !in_.empty()); ++i) step(in_.byte());
  }

 private:
  void step(uint8_t which);
  void open(moe_session** session);
  void look();
  void eval();
  void cut();
  void both();
  void sample();
  void generate();
  void route();
  void perplexity();

  void rewind() {
    const int32_t at = in_.flag() ? 0 : in_.number();
    moe_error e{};
    const int32_t before = moe_session_position(session_);
    const bool ok = fine(moe_session_rewind(session_, at, &e), e);
    require(moe_session_position(session_) == (ok ? at : before));
  }
  std::vector<int32_t> tokens(size_t most) {
    std::vector<int32_t> out(in_.below(most + 1));
    for (int32_t& id : out) id = in_.byte();
    const int32_t any = info_.vocab_size;
    for (int32_t& id : out) id = id == 255 ? in_.number() : id % any;
    return out;
  }
  moe_sampling sampling() {
    moe_sampling s{};
    s.struct_size = sizeof s;
    if (in_.flag()) return s;
    s.temperature = in_.real();
    s.top_k = in_.number();
    s.top_p = in_.real();
    s.min_p = in_.real();
    s.repetition_penalty = in_.real();
    s.repetition_window = in_.number();
    s.seed = in_.wide();
    bias_ = {in_.number(), in_.real()};
    s.n_bias = in_.flag() ? 1 : 0;
    s.bias = &bias_;
    return s;
  }
  bool valid(int32_t token) const { return token >= 0 && token < info_.vocab_size; }

  FuzzBytes& in_;
  moe_model* model_;
  moe_model_info info_{};
  moe_session* session_ = nullptr;
  moe_session* other_ = nullptr;
  moe_logit_bias bias_{};
};

void Steps::step(uint8_t which) {
  switch (which % 10) {
    case 0:
      return open(in_.flag() ? &session_ : &other_);
    case 1:
      return rewind();
    case 2:
      return both();
    case 3:
      return sample();
    case 4:
      return generate();
    case 5:
      return route();
    case 6:
      return perplexity();
    case 7:
      return cut();
    default:
      return eval();
  }
}

// Replaces `session`, if a new one can be created.
void Steps::open(moe_session** session) {
  moe_session_params p{};
  p.struct_size = sizeof p;
  p.context = in_.flag() ? in_.number() : in_range(in_, 0, 200);
  p.chunk = in_range(in_, 0, 40);
  const moe_kv_type kinds[] = {MOE_KV_F16, MOE_KV_INT8, MOE_KV_LATENT};
  p.kv = kinds[in_.below(3)];
  moe_session* made = nullptr;
  moe_error e{};
  if (!fine(moe_session_create(model_, &p, &made, &e), e)) return;
  moe_session_free(*session);
  *session = made;
  require(moe_session_position(made) == 0 && moe_session_context(made) > 0);
}

// Calls every function that queries a model.
void Steps::look() {
  for (int32_t i = 0; i < info_.n_layers; ++i) {
    moe_model_layer_info layer{};
    layer.struct_size = sizeof layer;
    require(moe_model_get_layer_info(model_, i, &layer, nullptr) == MOE_OK);
    require(layer.n_active <= layer.n_experts && layer.activation != nullptr);
    auto router = MOE_INIT(moe_router);
    if (moe_model_get_router(model_, i, &router, nullptr) != MOE_OK) continue;
    char text[512];
    size_t n_bytes = 0;
    require(moe_router_format(&router, text, sizeof text, &n_bytes, nullptr) == MOE_OK);
    require(moe_router_parse(text, &router, nullptr) == MOE_OK);
  }
  for (size_t i = 0; i < moe_model_tensor_count(model_); ++i) {
    moe_tensor_info tensor{};
    tensor.struct_size = sizeof tensor;
    require(moe_model_get_tensor_info(model_, i, &tensor, nullptr) == MOE_OK);
    require(tensor.rows > 0 && tensor.cols > 0 && std::strlen(tensor.role) != 0);
  }
  moe_memory_line lines[64];
  size_t n = 0;
  moe_error e{};
  fine(moe_model_get_memory(model_, nullptr, 1, lines, std::size(lines), &n, &e), e);
  if (in_.byte() % 8 != 0) return;
  moe_error v{};
  fine(moe_model_verify(model_, &v), v);
}

void Steps::eval() {
  const std::vector<int32_t> ids = tokens(20);
  const moe_rows rows = in_.flag() ? MOE_ROWS_ALL : MOE_ROWS_LAST;
  const size_t n_rows = rows == MOE_ROWS_ALL ? ids.size() : 1;
  std::vector<float> logits(n_rows * static_cast<size_t>(info_.vocab_size));
  const int32_t before = moe_session_position(session_);
  moe_error e{};
  const bool ok =
      fine(moe_session_eval(session_, ids.data(), ids.size(), rows, logits.data(), &e), e);
  const int32_t moved = moe_session_position(session_) - before;
  require(moved >= 0 && moved <= static_cast<int32_t>(ids.size()));
  require(!ok || moved == static_cast<int32_t>(ids.size()));
  for (const float logit : logits) require(!ok || std::isfinite(logit));
  require(moe_session_position(session_) <= moe_session_context(session_));
}

// A text evaluated in pieces gives the same bits as in one call.
void Steps::cut() {
  const std::vector<int32_t> ids = tokens(20);
  if (ids.empty()) return;
  const size_t vocab = static_cast<size_t>(info_.vocab_size);
  std::vector<float> whole(ids.size() * vocab);
  std::vector<float> pieces(ids.size() * vocab);
  moe_session_set_router(session_, nullptr, nullptr);
  moe_session_rewind(session_, 0, nullptr);
  if (moe_session_eval(session_, ids.data(), ids.size(), MOE_ROWS_ALL, whole.data(), nullptr) !=
      0) {
    return;
  }
  moe_session_rewind(session_, 0, nullptr);
  for (size_t i = 0; i < ids.size();) {
    const size_t n = std::min(1 + in_.below(5), ids.size() - i);
    if (moe_session_eval(session_, &ids[i], n, MOE_ROWS_ALL, &pieces[i * vocab], nullptr) != 0)
      return;
    i += n;
  }
  for (int32_t i = 0; i < info_.n_layers; ++i) {
    const RouterConfig* router = session_->session->router(i);
    if (router != nullptr && router->gamma > 0)
      return;  // a capacity depends on the tokens of a call
  }
  require(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)) == 0);
}

void Steps::both() {
  if (other_ == nullptr) open(&other_);
  if (other_ == nullptr) return;
  moe_session* const sessions[] = {session_, in_.byte() == 0 ? session_ : other_};
  const int32_t ids[] = {in_.byte() % info_.vocab_size, in_.number()};
  std::vector<float> logits(2 * static_cast<size_t>(info_.vocab_size));
  const int32_t before = moe_session_position(session_);
  moe_error e{};
  const bool ok = fine(moe_sessions_eval(sessions, ids, nullptr, 2, logits.data(), &e), e);
  require(moe_session_position(session_) == before + (ok ? 1 : 0));
}

void Steps::sample() {
  const moe_sampling s = sampling();
  moe_token_logprob out{};
  moe_token_logprob top[5];
  moe_error e{};
  if (!fine(moe_session_sample(session_, &s, &out, top, std::size(top), &e), e)) return;
  require(valid(out.token));
  for (const moe_token_logprob& t : top) require(t.token == -1 || valid(t.token));
}

void Steps::generate() {
  struct Seen {
    int32_t n = 0;
    int32_t stop = 0;
    static bool piece(void* user, const moe_piece* p) {
      auto* seen = static_cast<Seen*>(user);
      require(p->text != nullptr && p->text[0] != '\xFF');
      return ++seen->n != seen->stop;
    }
  } seen;
  seen.stop = in_.byte() % 16;
  const moe_sampling s = sampling();
  const std::string stop(in_.take(in_.byte() % 4));
  const char* const stops[] = {stop.c_str()};
  moe_generate_params p{};
  p.struct_size = sizeof p;
  p.max_tokens = in_range(in_, 1, 8);
  p.sampling = &s;
  p.stop = stops;
  p.n_stop = stop.empty() ? 0 : 1;
  p.ignore_eos = in_.flag();
  p.n_top = in_.byte() % 8;
  p.piece = Seen::piece;
  p.piece_user = &seen;
  const std::vector<int32_t> prompt = tokens(6);
  moe_generate_result r{};
  r.struct_size = sizeof r;
  moe_error e{};
  if (!fine(moe_session_generate(session_, prompt.data(), prompt.size(), &p, &r, &e), e)) return;
  require(r.finish >= MOE_FINISH_LENGTH && r.finish <= MOE_FINISH_CALLBACK);
  require(r.n_generated <= p.max_tokens);
}

void Steps::route() {
  static const char* const kTexts[] = {"topk:1", "topk:2,gamma=1.25", "threshold:0.9,max_k=3",
                                       "gamma=0.5,min_capacity=1", nullptr};
  const uint8_t which = in_.byte();
  const bool listed = which < std::size(kTexts);
  const std::string own(in_.take(listed ? 0 : which % 32));
  const char* text = listed ? kTexts[which] : own.c_str();
  moe_error e{};
  auto router = MOE_INIT(moe_router);
  const bool read = text != nullptr && fine(moe_router_parse(text, &router, &e), e);
  e = {};
  fine(moe_session_set_router(session_, read ? &router : nullptr, &e), e);
  require(moe_session_count_routing(session_, true, nullptr) == MOE_OK);
  eval();
  for (int32_t i = 0; i < info_.n_layers; ++i) {
    moe_activation_stats inner{};
    inner.struct_size = sizeof inner;
    require(moe_session_get_activations(session_, i, &inner, nullptr) == MOE_OK);
    require(inner.n_positive <= inner.n_activations);
    moe_routing_stats stats{};
    stats.struct_size = sizeof stats;
    if (moe_session_get_routing(session_, i, &stats, nullptr) != MOE_OK) continue;
    uint64_t served = 0;
    for (int32_t k = 0; k <= stats.n_experts; ++k) served += stats.experts_per_token[k];
    uint64_t pairs = 0;
    uint64_t expected = 0;
    for (int32_t k = 0; k < stats.n_experts; ++k) pairs += stats.tokens_per_expert[k];
    for (int32_t k = 0; k <= stats.n_experts; ++k) {
      expected += static_cast<uint64_t>(k) * stats.experts_per_token[k];
    }
    require(served == stats.n_tokens && pairs == expected);
  }
  if (in_.flag()) require(moe_session_count_routing(session_, false, nullptr) == MOE_OK);
}

void Steps::perplexity() {
  const std::vector<int32_t> ids = tokens(40);
  moe_session_rewind(session_, 0, nullptr);
  moe_perplexity out{};
  out.struct_size = sizeof out;
  moe_error e{};
  const bool ok =
      fine(moe_session_perplexity(session_, ids.data(), ids.size(), nullptr, nullptr, &out, &e), e);
  require(!ok || (out.n_scored > 0 && out.n_scored <= ids.size() && std::isfinite(out.mean_nll)));
  require(moe_session_position(session_) == 0);
}

void use(FuzzBytes& in) {
  const std::unique_ptr<FuzzFile> file = fuzz_model(in);
  if (file == nullptr) return;
  const uint8_t how = in.byte();
  Storage storage{file.get(), (how & 1) != 0 ? in.byte() : ~size_t{0}};
  const moe_reader reader = {
      .struct_size = sizeof reader, .size = file->size(), .read = Storage::read, .user = &storage};
  moe_model_params p{};
  p.struct_size = sizeof p;
  p.skip_checksums = (how & 2) != 0 ? 1 : 0;
  p.memory_bytes = (how & 4) != 0 ? in.word() & 0xFFFFF : 0;
  moe_model* model = nullptr;
  moe_error e{};
  const moe_status status =
      (how & 8) != 0 ? moe_model_open_memory(fuzz_env(), file->data(), file->size(), &p, &model, &e)
                     : moe_model_open_reader(fuzz_env(), &reader, &p, &model, &e);
  if (!fine(status, e)) return;
  Steps(in, model).run();
  moe_model_free(model);
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::fuzz_env();
  const size_t before = moe::fuzz_memory().held();
  moe::FuzzBytes in(data, size);
  moe::use(in);
  moe::require(moe::fuzz_memory().held() == before);
  return 0;
}
