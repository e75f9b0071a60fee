// SPDX-License-Identifier: MIT
// Calls every function of the C API on open handles with arguments from the input, which is a list
// of calls. Each call must return a status.

#include <filesystem>

#include "tests/c_api/fuzz_args.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/support/tiny_model.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

constexpr int32_t kVocab = 256;

const MemorySink& file() {
  static const std::unique_ptr<MemorySink> made = [] {
    ModelConfig config = tiny_config();
    config.vocab_size = kVocab;
    TinyOptions options;
    options.tokenizer = [](flatbuffers::FlatBufferBuilder& b) {
      TokenizerData data;  // bytes
      data.chat_template =
          "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{{ enable_thinking }}";
      return write_tokenizer(b, data);
    };
    return build_tiny_model(config, options);
  }();
  return *made;
}

/// A folder with the model, for the functions that take paths.
const test::TempFolder& folder() {
  static const test::TempFolder made;
  static const bool written = [] {
    made.write("m.moe", {reinterpret_cast<const char*>(file().data()), file().size()});
    return true;
  }();
  (void)written;
  return made;
}

struct OwnChat {
  moe_chat* handle = nullptr;
  size_t session = 0;
};

/// The open handles, which are freed in any order.
class World {
 public:
  World() {
    open_model(0, nullptr);
    require(models_[0] != nullptr);
    moe_session_params p{};
    p.struct_size = sizeof p;
    p.context = 60;
    require(moe_session_create(models_[0], &p, &sessions_[0], nullptr) == MOE_OK);
    require(moe_chat_create(sessions_[0], nullptr, &chats_[0].handle, nullptr) == MOE_OK);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    for (size_t i = 0; i < 2; ++i) free_model(i);
    for (size_t i = 0; i < 2; ++i) free_layer(i);
    for (size_t i = 0; i < kSessions; ++i) free_session(i);
    for (OwnChat& chat : chats_) free_chat(chat);
    moe_env_free(other_env_);
  }

  void call(FuzzBytes& in);

 private:
  static constexpr size_t kSessions = 3;

  void open_model(size_t slot, FuzzArgs* args);
  void free_model(size_t slot) {
    moe_model_free(models_[slot]);
    models_[slot] = nullptr;
  }
  void free_session(size_t slot) {
    moe_session_free(sessions_[slot]);
    sessions_[slot] = nullptr;
  }
  static void free_chat(OwnChat& chat) {
    moe_chat_free(chat.handle);
    chat.handle = nullptr;
  }
  void free_layer(size_t slot) {
    moe_layer_free(layers_[slot]);
    layers_[slot] = nullptr;
  }
  moe_model* model(FuzzArgs& a) { return models_[a.in().byte() < 200 ? 0 : 1]; }
  moe_session* session(FuzzArgs& a) {
    const uint8_t which = a.in().byte();
    return sessions_[which < 200 ? 0 : which % kSessions];
  }
  moe_chat* chat(FuzzArgs& a) { return chats_[a.in().byte() < 200 ? 0 : 1].handle; }

  void call_env(FuzzArgs& a, uint8_t which);
  void call_model(FuzzArgs& a, uint8_t which);
  void call_tokenizer(FuzzArgs& a, uint8_t which);
  void call_session(FuzzArgs& a, uint8_t which);
  void call_routing(FuzzArgs& a, uint8_t which);
  void call_generate(FuzzArgs& a, uint8_t which);
  void call_chat(FuzzArgs& a, uint8_t which);
  void call_conversation(FuzzArgs& a, uint8_t which);
  void call_layer(FuzzArgs& a, uint8_t which);
  void call_convert(FuzzArgs& a, uint8_t which);
  void create_session(FuzzArgs& a);
  void create_chat(FuzzArgs& a);
  void change_session(FuzzArgs& a);
  void create_layer(FuzzArgs& a);

  moe_model* models_[2] = {};
  moe_session* sessions_[kSessions] = {};
  OwnChat chats_[2];
  moe_layer* layers_[2] = {};
  int32_t layer_width_[2] = {};
  moe_env* other_env_ = nullptr;
};

void World::call(FuzzBytes& in) {
  FuzzArgs a(in);
  const uint8_t group = in.byte();
  const uint8_t which = in.byte();
  switch (group % 10) {
    case 0:
      return call_env(a, which);
    case 1:
      return call_model(a, which);
    case 2:
      return call_tokenizer(a, which);
    case 3:
      return call_session(a, which);
    case 4:
      return call_routing(a, which);
    case 5:
      return call_generate(a, which);
    case 6:
      return call_chat(a, which);
    case 7:
      return call_conversation(a, which);
    case 8:
      return call_layer(a, which);
    default:
      return call_convert(a, which);
  }
}

// -------------------------------------------------------------------------------- environment

void World::call_env(FuzzArgs& a, uint8_t which) {
  if (which % 4 == 0) {
    (void)a.fine(moe_env_get_info(a.maybe(fuzz_env()), a.out<moe_env_info>(), a.error()));
    require(moe_status_name(static_cast<moe_status>(a.in().byte() % 64)) != nullptr);
    const size_t index = a.in().flag() ? a.in().byte() % 16 : a.in().wide();
    for (const auto list : {moe_isa_name, moe_weight_format_name, moe_router_kind,
                            moe_chat_template_name, moe_synthetic_shape_name}) {
      require(list(index) == nullptr || list(index)[0] != '\0');
    }
    return;
  }
  moe_env_free(other_env_);
  other_env_ = nullptr;
  const char* const isas[] = {"scalar", "avx2", "", "mmx"};
  const char* const devices[] = {"cpu", "cpu", "cuda:99999999999", "cuda:-1", "gpu", ""};
  moe_allocator allocator = fuzz_allocator();
  if (a.in().byte() == 13) allocator.allocate = nullptr;
  moe_env_params p{};
  p.threads = a.in().number();
  if (p.threads > 3 && p.threads <= 1024) p.threads %= 3;  // many threads take long to make
  p.isa = a.text(isas);
  p.device = a.text(devices);
  p.allocator = a.params(allocator);
  p.log = [](void*, moe_log_level, const char* text) { require(text != nullptr); };
  p.gpu_memory_bytes = a.in().wide();
  (void)a.fine(moe_env_create(a.params(p), a.maybe(&other_env_), a.error()));
}

// -------------------------------------------------------------------------------------- model

bool read_file(void* user, uint64_t offset, void* buffer, size_t n) {
  if (*static_cast<uint8_t*>(user) == 13) return false;
  require(offset <= file().size() && n <= file().size() - offset);
  std::memcpy(buffer, file().data() + offset, n);
  return true;
}

void World::open_model(size_t slot, FuzzArgs* args) {
  static uint8_t failing = 0;
  moe_model_params p{};
  p.struct_size = sizeof p;
  if (args == nullptr) {
    require(moe_model_open_memory(fuzz_env(), file().data(), file().size(), &p, &models_[slot],
                                  nullptr) == MOE_OK);
    return;
  }
  FuzzArgs& a = *args;
  const std::string path = folder().file("m.moe");
  const char* const paths[] = {path.c_str(), folder().path().c_str(), "", "/dev/null", "/no/such"};
  moe_session_params session{};
  session.context = a.in().number();
  p.map_weights = a.in().number();
  p.skip_checksums = a.in().number();
  p.reserved = a.in().byte() == 13 ? 1 : 0;
  p.memory_bytes = a.in().flag() ? a.in().word() : 0;
  p.session = a.in().flag() ? a.params(session) : nullptr;
  moe_env* env = a.maybe(fuzz_env());
  moe_model** out = a.maybe(&models_[slot]);
  const uint8_t how = a.in().byte();
  const int32_t io = how < 200 ? 0 : how - 200;
  std::memcpy(&p.io, &io, sizeof io);
  if (how % 3 == 0) {
    (void)a.fine(moe_model_open(env, a.text(paths), a.params(p), out, a.error()));
  } else if (how % 3 == 1) {
    const size_t n = how < 200 ? file().size() : a.in().below(65536);
    (void)a.fine(moe_model_open_memory(env, a.maybe(file().data()), std::min(n, file().size()),
                                       a.params(p), out, a.error()));
  } else {
    failing = a.in().byte();
    moe_reader reader = {
        .struct_size = sizeof reader, .size = file().size(), .read = read_file, .user = &failing};
    if (a.in().byte() == 13) reader.read = nullptr;
    if (a.in().byte() == 13) reader.size = a.in().below(65536);
    (void)a.fine(moe_model_open_reader(env, a.params(reader), a.params(p), out, a.error()));
  }
}

void World::call_model(FuzzArgs& a, uint8_t which) {
  moe_model* m = model(a);
  if (which % 6 == 0) {
    free_model(1);
    open_model(1, &a);
  } else if (which % 6 == 1) {
    (void)a.fine(moe_model_get_info(m, a.out<moe_model_info>(), a.error()));
  } else if (which % 6 == 2) {
    const int32_t layer = a.in().number();
    (void)a.fine(moe_model_get_layer_info(m, layer, a.out<moe_model_layer_info>(), a.error()));
    (void)a.fine(moe_model_get_router(m, layer, a.out<moe_router>(), a.error()));
  } else if (which % 6 == 3) {
    const size_t n = moe_model_tensor_count(m);
    const size_t index = a.in().flag() ? a.in().below(n + 2) : a.in().wide();
    (void)a.fine(moe_model_get_tensor_info(m, index, a.out<moe_tensor_info>(), a.error()));
  } else if (which % 6 == 4) {
    moe_session_params p{};
    p.context = a.in().number();
    p.chunk = a.in().number();
    const FuzzBuffer<moe_memory_line> lines(a);
    const moe_status status = moe_model_get_memory(m, a.params(p), 1, lines.data, lines.capacity,
                                                   lines.length, a.error());
    (void)a.fine(status);
    lines.check(status, 0);
  } else {
    (void)a.fine(moe_model_verify(m, a.error()));
    (void)moe_model_chat_template(m);
  }
}

void World::call_tokenizer(FuzzArgs& a, uint8_t which) {
  const moe_tokenizer* t = moe_model_tokenizer(model(a));
  const uint32_t flags = a.in().byte() < 250 ? a.in().byte() % 4 : a.in().word();
  if (which % 3 == 0) {
    const size_t n = a.in().byte();
    const char* text = a.maybe(a.text(n));
    const size_t n_bytes = text == nullptr ? a.in().byte() : std::strlen(text);
    const FuzzBuffer<int32_t> ids(a);
    const moe_status status = moe_tokenizer_encode(t, text, n_bytes, flags, ids.data, ids.capacity,
                                                   ids.length, a.error());
    (void)a.fine(status);
    ids.check(status, 0);
  } else if (which % 3 == 1) {
    const std::vector<int32_t> ids = a.ids(200);
    const FuzzBuffer<char> text(a);
    const moe_status status =
        moe_tokenizer_decode(t, a.maybe(ids.data()), ids.size(), flags, text.data, text.capacity,
                             text.length, a.error());
    (void)a.fine(status);
    text.check(status, 1);
  } else {
    (void)moe_tokenizer_piece(t, a.in().number());
  }
}

// ------------------------------------------------------------------------------------ session

void World::create_session(FuzzArgs& a) {
  const size_t slot = 1 + a.in().below(kSessions - 1);
  const size_t parent = a.in().below(2);
  free_session(slot);
  moe_session_params p{};
  p.context = a.in().number();
  p.chunk = a.in().number();
  a.set(&p.kv);
  (void)a.fine(
      moe_session_create(models_[parent], a.params(p), a.maybe(&sessions_[slot]), a.error()));
}

bool watch(void* user, uint64_t done, uint64_t total, const char* what) {
  require(done <= total && what != nullptr);
  return *static_cast<uint8_t*>(user) != 13;
}

void World::call_session(FuzzArgs& a, uint8_t which) {
  if (which % 6 == 0) return create_session(a);
  moe_session* s = session(a);
  const std::vector<int32_t> ids = a.ids(70);
  const size_t n = ids.size();
  if (which % 6 == 1 && which >= 128) {
    const size_t n_logprobs = a.in().flag() ? n : n - std::min<size_t>(n, a.in().below(3));
    float* logprobs = a.maybe(a.array<float>(n_logprobs));
    (void)a.fine(moe_session_score(s, a.maybe(ids.data()), n, logprobs, n_logprobs, a.error()));
  } else if (which % 6 == 1) {
    moe_rows rows = a.in().flag() ? MOE_ROWS_ALL : MOE_ROWS_LAST;
    if (a.in().byte() == 13) rows = static_cast<moe_rows>(a.in().below(4));  // 3 is no moe_rows
    float* logits = a.maybe(a.array<float>(std::max<size_t>(n, 1) * kVocab));
    (void)a.fine(moe_session_eval(s, a.maybe(ids.data()), n, rows, logits, a.error()));
  } else if (which % 6 == 2) {
    std::vector<moe_session*> all(n);
    for (moe_session*& handle : all) handle = session(a);
    float* logits = a.maybe(a.array<float>(n * kVocab));
    if (which < 128) {
      (void)a.fine(moe_sessions_eval(a.maybe(all.data()), a.maybe(ids.data()), nullptr, n, logits,
                                     a.error()));
    } else {  // each session gets one token, the first one the rest
      std::vector<size_t> counts(n, 1);
      const size_t n_sessions = std::min<size_t>(n, 1 + a.in().below(3));
      if (n_sessions > 0) counts[0] = n - n_sessions + a.in().flag();
      (void)a.fine(moe_sessions_eval(a.maybe(all.data()), a.maybe(ids.data()),
                                     a.maybe(counts.data()), n_sessions, logits, a.error()));
    }
  } else if (which % 6 == 3) {
    (void)a.fine(moe_session_rewind(s, a.in().number(), a.error()));
  } else if (which % 6 == 4) {
    moe_session_cancel(s);
    require(moe_session_position(s) <= moe_session_context(s));
    if (a.in().byte() == 13) free_session(a.in().below(kSessions));
  } else {
    uint8_t mood = a.in().byte();
    auto* out = a.out<moe_perplexity>();
    (void)a.fine(
        moe_session_perplexity(s, a.maybe(ids.data()), n, a.maybe(watch), &mood, out, a.error()));
  }
}

/// One of these texts, or any fields; then its text, which reads back as the same.
template <size_t n>
const moe_router* router(FuzzArgs& a, const char* const (&texts)[n]) {
  auto r = MOE_INIT(moe_router);
  if (a.in().byte() < 200) {
    (void)a.fine(moe_router_parse(a.text(texts), &r, a.error()));
  } else {
    const char* const names[] = {"topk", "threshold", "cosine", "raw", "chosen", "sigmoid"};
    r.kind = a.text(names);
    r.weights = a.text(names);
    r.gate = a.text(names);
    for (int32_t* count : {&r.k, &r.min_k, &r.max_k, &r.n_groups, &r.top_groups, &r.min_capacity}) {
      *count = a.in().flag() ? 0 : a.in().number();
    }
    for (float* number :
         {&r.threshold, &r.scale, &r.tau, &r.cosine_eps, &r.jitter, &r.gamma, &r.resident}) {
      *number = a.in().flag() ? 0 : a.in().real();
    }
  }
  const FuzzBuffer<char> text(a);
  const moe_status status = moe_router_format(&r, text.data, text.capacity, text.length, a.error());
  (void)a.fine(status);
  text.check(status, 1);
  return a.params(r);
}

void World::call_routing(FuzzArgs& a, uint8_t which) {
  moe_session* s = session(a);
  const char* const routers[] = {"topk:1",     "threshold:0.5,max_k=2", "gamma=1", "topk:2,min_k=5",
                                 "topk:99999", "threshold:nan",         ",",       ""};
  if (which % 3 == 0) {
    (void)a.fine(moe_session_set_router(s, router(a, routers), a.error()));
  } else if (which % 3 == 1) {
    const bool on = a.in().flag();
    (void)a.fine(moe_session_count_routing(s, on, a.error()));
    (void)a.fine(moe_session_expect_drafts(s, on, a.error()));
  } else {
    const int32_t layer = a.in().byte() < 200 ? 1 : a.in().number();
    auto* out = a.out<moe_routing_stats>();
    if (a.fine(moe_session_get_routing(s, layer, out, a.error()))) require(out->struct_size >= 4);
    auto* inner = a.out<moe_activation_stats>();
    if (a.fine(moe_session_get_activations(s, layer, inner, a.error()))) {
      require(inner->struct_size >= 4);
    }
  }
}

// --------------------------------------------------------------------------------- generation

moe_sampling* sampling(FuzzArgs& a) {
  if (a.in().flag()) return nullptr;
  moe_sampling s{};
  s.temperature = a.in().real();
  s.top_k = a.in().number();
  s.top_p = a.in().real();
  s.min_p = a.in().real();
  s.repetition_penalty = a.in().real();
  s.repetition_window = a.in().number();
  s.seed = a.in().wide();
  s.n_bias = a.in().byte() < 250 ? a.in().byte() % 8 : -1;
  auto* bias = a.array<moe_logit_bias>(static_cast<size_t>(std::max(s.n_bias, 0)));
  for (int32_t i = 0; i < s.n_bias; ++i) bias[i] = {a.in().number(), a.in().real()};
  s.bias = a.maybe(bias);
  return a.params(s);
}

/// The callback of a piece: continues, stops, cancels, or makes a call that is not
/// allowed there.
struct Listener {
  moe_session* session;
  moe_chat* chat;
  uint8_t mood;
};

bool listen(void* user, const moe_piece* piece) {
  const auto* l = static_cast<const Listener*>(user);
  require(piece->text != nullptr && (piece->n_top == 0 || piece->top != nullptr));
  const int32_t id = 1;
  if (l->mood == 1) moe_session_cancel(l->session);
  if (l->mood == 2)
    require(moe_session_eval(l->session, &id, 1, MOE_ROWS_NONE, nullptr, nullptr) != MOE_OK);
  if (l->mood == 3) require(moe_session_rewind(l->session, 0, nullptr) != MOE_OK);
  if (l->mood == 4 && l->chat != nullptr) {
    require(moe_chat_add(l->chat, "user", "x", 1, nullptr) != MOE_OK);
  }
  return l->mood != 5;
}

bool change_logits(void* user, const int32_t* tokens, size_t n_tokens, float* logits,
                   size_t n_logits) {
  const auto* l = static_cast<const Listener*>(user);
  require(n_tokens > 0 && tokens[n_tokens - 1] >= 0 && n_logits == kVocab);
  const int32_t id = 1;
  require(moe_session_score(l->session, &id, 1, logits, 1, nullptr) != MOE_OK);
  logits[l->mood] = l->mood % 2 == 0 ? -__builtin_inff() : 3e38f;
  if (l->mood == 255) logits[n_logits - 1] = __builtin_nanf("");
  return l->mood != 254;
}

moe_generate_params* generation(FuzzArgs& a, Listener* listener) {
  moe_generate_params p{};
  p.max_tokens = a.in().byte() < 240 ? 1 + a.in().byte() % 16 : a.in().number();
  p.sampling = sampling(a);
  p.n_stop = a.in().byte() < 240 ? a.in().byte() % 4 : a.in().byte() % 70 - 1;
  auto* stops = a.array<const char*>(static_cast<size_t>(std::max(p.n_stop, 0)));
  for (int32_t i = 0; i < p.n_stop; ++i) stops[i] = a.maybe(a.text(a.in().byte() % 8));
  p.stop = a.maybe(stops);
  p.ignore_eos = a.in().number();
  p.n_top = a.in().byte() < 240 ? a.in().byte() % 8 : a.in().number();
  p.max_draft = a.in().byte() % 20 - 1;
  p.piece = a.maybe(listen);
  p.piece_user = listener;
  if (listener->mood >= 200) {
    p.logits = change_logits;
    p.logits_user = listener;
  }
  return a.params(p);
}

void World::call_generate(FuzzArgs& a, uint8_t which) {
  moe_session* s = session(a);
  if (which % 2 == 0) {
    const size_t n_top = a.in().byte() < 240 ? a.in().byte() % 70 : a.in().wide();
    auto* top = n_top > 70 ? nullptr : a.maybe(a.array<moe_token_logprob>(n_top));
    auto* out = a.maybe(a.array<moe_token_logprob>(1));
    (void)a.fine(moe_session_sample(s, sampling(a), out, top, n_top, a.error()));
    return;
  }
  Listener listener{s, nullptr, a.in().byte()};
  const std::vector<int32_t> prompt = a.ids(20);
  const moe_generate_params* p = generation(a, &listener);
  auto* out = a.out<moe_generate_result>();
  (void)a.fine(moe_session_generate(s, a.maybe(prompt.data()), prompt.size(), p, out, a.error()));
}

// --------------------------------------------------------------------------------------- chat

void World::create_chat(FuzzArgs& a) {
  free_chat(chats_[1]);
  chats_[1].session = a.in().below(kSessions);
  const char* const templates[] = {"chatml", "plain",   "llama3", "{{ messages[0].content }}",
                                   "{% if",  "mistral", "nope",   "{{ raise_exception('x') }}"};
  const char* const dates[] = {"2024-02-29", "", "2024-13-40", "today"};
  const char* const variables[] = {"a=1", "enable_thinking=false", "=", "x", "user_prefix=U: "};
  moe_chat_params p{};
  a.set(&p.thinking);
  p.chat_template = a.text(templates);
  p.system = a.maybe(a.text(a.in().byte() % 16));
  p.n_variables = a.in().byte() < 250 ? a.in().byte() % 4 : -1;
  auto* given = a.array<const char*>(static_cast<size_t>(std::max(p.n_variables, 0)));
  for (int32_t i = 0; i < p.n_variables; ++i) given[i] = a.text(variables);
  p.variables = a.maybe(given);
  p.reserved = a.in().byte() == 13 ? 1 : 0;
  p.date = a.text(dates);
  (void)a.fine(moe_chat_create(sessions_[chats_[1].session], a.params(p),
                               a.maybe(&chats_[1].handle), a.error()));
}

void World::change_session(FuzzArgs& a) {
  OwnChat& c = chats_[a.in().below(2)];
  const size_t slot = a.in().below(kSessions);
  if (a.fine(moe_chat_set_session(c.handle, sessions_[slot], a.error()))) c.session = slot;
}

void World::call_chat(FuzzArgs& a, uint8_t which) {
  if (which % 5 == 0) return create_chat(a);
  if (which % 5 == 4) return change_session(a);
  moe_chat* c = chat(a);
  const char* const roles[] = {"user", "assistant", "system", "tool", ""};
  if (which % 5 == 1) {
    const char* role = a.text(roles);
    const char* content = a.maybe(a.text(a.in().byte() % 32));
    const size_t n = content == nullptr ? a.in().byte() % 2 : std::strlen(content);
    (void)a.fine(moe_chat_add(c, role, content, n, a.error()));
  } else if (which % 5 == 2) {
    const size_t n = a.in().flag() ? a.in().byte() % 8 : a.in().wide();
    (void)a.fine(moe_chat_truncate(c, n, a.error()));
  } else {
    (void)a.fine(moe_chat_set_system(c, a.text(roles), a.error()));
  }
}

void World::call_conversation(FuzzArgs& a, uint8_t which) {
  moe_chat* c = chat(a);
  if (which % 4 == 0) {
    const size_t index = a.in().below(moe_chat_message_count(c) + 2);
    (void)a.fine(moe_chat_get_message(c, index, a.out<moe_chat_message>(), a.error()));
  } else if (which % 4 == 1) {
    const bool reply = a.in().flag();
    const FuzzBuffer<char> text(a);
    const moe_status status =
        moe_chat_render(c, reply, text.data, text.capacity, text.length, a.error());
    (void)a.fine(status);
    text.check(status, 1);
  } else if (which % 4 == 2) {
    const bool reply = a.in().flag();
    const FuzzBuffer<int32_t> ids(a);
    const moe_status status =
        moe_chat_tokens(c, reply, ids.data, ids.capacity, ids.length, a.error());
    (void)a.fine(status);
    ids.check(status, 0);
  } else {
    const OwnChat& own = chats_[c == chats_[1].handle ? 1 : 0];
    Listener listener{sessions_[own.session], c, a.in().byte()};
    const moe_generate_params* p = generation(a, &listener);
    (void)a.fine(moe_chat_reply(c, p, a.out<moe_chat_result>(), a.error()));
  }
}

// ------------------------------------------------------------------------------ layer, converter

moe_expert_weights expert(FuzzArgs& a, int32_t d_ff, int32_t d_in) {
  auto e = MOE_INIT(moe_expert_weights);
  if (a.in().byte() == 13) e.struct_size = a.in().byte();
  e.gate = a.in().flag() ? a.floats(d_ff, d_in) : nullptr;
  e.up = a.floats(d_ff, d_in);
  e.down = a.floats(d_in, d_ff);
  if (a.in().flag()) e.up_bias = a.floats(d_ff, 1);
  if (a.in().flag()) e.down_bias = a.floats(d_in, 1);
  return e;
}

void World::create_layer(FuzzArgs& a) {
  const size_t slot = a.in().below(2);
  free_layer(slot);
  const auto size = [&a](int32_t most) {
    return a.in().byte() < 250 ? 1 + a.in().byte() % most : a.in().number();
  };
  const char* const activations[] = {"relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh"};
  const char* const routers[] = {"topk:2",
                                 "threshold:0.9",
                                 "topk:2,renormalised",
                                 "sigmoid:2",
                                 "cosine:1",
                                 "base",
                                 "sparsemixer",
                                 "topk:0",
                                 "topk:2.5,x=",
                                 "cosine:2,tau=0.07,scale=2"};
  const char* const formats[] = {"f32",  "ternary2", "ternary3", "int8",
                                 "int4", "bf16",     "f16",      "i32"};
  const char* const precisions[] = {"f32", "a8", "a8_block", "a8_group", "a4"};
  moe_layer_params p{};
  p.d_model = size(24);
  p.d_ff = size(24);
  p.n_experts = size(8);
  p.n_subheads = a.in().byte() < 200 ? 0 : size(4);
  p.max_rows = a.in().byte() < 200 ? 0 : a.in().number();
  p.activation = a.text(activations);
  p.router = router(a, routers);
  p.weights = a.text(formats);
  p.activations = a.text(precisions);
  const int32_t d_in = p.d_model / std::max(p.n_subheads, 1);
  if (p.n_experts > 0 && p.n_experts <= 64) {
    auto* experts = a.array<moe_expert_weights>(static_cast<size_t>(p.n_experts));
    for (int32_t i = 0; i < p.n_experts; ++i) experts[i] = expert(a, p.d_ff, d_in);
    p.experts = a.maybe(experts);
  }
  p.d_e = size(8);
  const bool cosine = a.in().byte() % 4 == 0;
  p.router_weight = a.floats(p.n_experts, cosine ? p.d_e : d_in);
  if (a.in().flag()) p.router_bias = a.floats(p.n_experts, 1);
  p.router_proj = a.floats(p.d_e, d_in);
  moe_expert_weights shared{};
  if (a.in().flag()) {
    p.shared_d_ff = size(16);
    shared = expert(a, p.shared_d_ff, p.d_model);
    p.shared = a.maybe(&shared);
    if (a.in().flag()) p.shared_gate = a.floats(p.d_model, 1);
  }
  if (p.n_subheads > 1 || a.in().byte() == 13) {
    p.head = a.floats(p.d_model, p.d_model);
    p.merge = a.floats(p.d_model, p.d_model);
    if (a.in().flag()) p.head_bias = a.floats(p.d_model, 1);
  }
  layer_width_[slot] = p.d_model;
  moe_layer_params* given = a.params(p);
  // A struct may end before the last fields of `p`; its sizes are the first ones.
  (void)a.fine(moe_layer_create(a.maybe(fuzz_env()), given, a.maybe(&layers_[slot]), a.error()));
}

void World::call_layer(FuzzArgs& a, uint8_t which) {
  if (which % 2 == 0) return create_layer(a);
  const size_t slot = a.in().below(2);
  const int32_t width = layers_[slot] == nullptr ? 1 : layer_width_[slot];
  const size_t n = a.in().byte() % 40;
  float* x = a.floats(static_cast<int64_t>(n), width);
  auto* y = a.maybe(a.array<float>(n * static_cast<size_t>(width)));
  (void)a.fine(moe_layer_forward(layers_[slot], x, n, y, a.error()));
}

void World::call_convert(FuzzArgs& a, uint8_t which) {
  const std::string target = folder().file("out.moe");
  const char* const targets[] = {target.c_str(), "", "/no/such/out.moe", folder().path().c_str()};
  const char* const weights[] = {"int8", "auto", "ternary2", "i32", ""};
  if (which % 3 == 0) {
    const char* const sources[] = {folder().path().c_str(), "", "/no/such", target.c_str()};
    const char* const overrides[] = {"*=f32", "=", "x"};
    moe_convert_params p{};
    p.compress = a.in().number();
    p.weights = a.text(weights);
    p.n_overrides = a.in().byte() < 250 ? a.in().byte() % 4 : -1;
    p.overrides = a.maybe(overrides);
    uint8_t mood = a.in().byte();
    p.progress = watch;
    p.progress_user = &mood;
    const char* source = a.text(sources);
    (void)a.fine(moe_convert(source, a.maybe(target.c_str()), a.params(p), a.error()));
    return;
  }
  const char* const shapes[] = {"tiny", "", "huge", "tiny "};
  const bool known = a.in().byte() == 13;  // rare, because it is slow
  const char* shape = known ? shapes[0] : shapes[1 + a.in().below(3)];
  moe_synthetic_params p{};
  p.context = a.in().number();
  p.weights = a.text(weights);
  p.seed = a.in().wide();
  uint8_t mood = a.in().byte();
  p.progress = a.maybe(watch);
  p.progress_user = &mood;
  if (which % 3 == 1) {
    (void)a.fine(
        moe_synthetic_save(a.maybe(shape), a.params(p), targets[a.in().below(4)], a.error()));
    std::filesystem::remove(target);
  } else {
    void* data = nullptr;
    size_t n = 0;
    (void)a.fine(
        moe_synthetic_create(a.maybe(shape), a.params(p), a.maybe(&data), a.maybe(&n), a.error()));
    moe_synthetic_free(data);
  }
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::fuzz_env();
  moe::file();
  const size_t before = moe::fuzz_memory().held();
  moe::FuzzBytes in(data, size);
  {
    moe::World world;
    for (int i = 0; i < 24 && !in.empty(); ++i) world.call(in);
  }
  moe::require(moe::fuzz_memory().held() == before);
  return 0;
}
