// SPDX-License-Identifier: MIT
// Conversations.

#include "src/run/chat.h"

#include "src/base/os/clock.h"
#include "src/c_api/generate.h"
#include "src/c_api/handles.h"
#include "src/c_api/load_tokenizer.h"
#include "src/text/chat/tools/message.h"

struct moe_chat {
  explicit moe_chat(moe_session& s)
      : model(s.model),
        allocator(&model->env->allocator),
        session(&s),
        tools(*allocator),
        tool(*allocator) {}

  const moe::Ref<moe_model> model;
  const moe::Allocator* allocator;
  moe::Mutex mutex;  // guards session and calls
  moe::Ref<moe_session> session;
  moe::Ref<moe_grammar> calls{nullptr};  // of the tools' calls; null: they are free
  moe::String tools;                     // as given
  moe_tool_choice choice = MOE_TOOLS_AUTO;
  moe::String tool;  // that must be called; empty: any
  moe::Box<moe::Chat> chat;
};

namespace moe {
namespace {

// A name or Jinja text. A misspelt name must not be taken for a template of literal text.
Status choose_template(const moe_model* model, const char* given, ChatOptions* out) {
  if (given == nullptr) {
    const char* own = moe_model_chat_template(model);
    if (own == nullptr) {
      return Status::error(MOE_ERR_NOT_FOUND,
                           "the model has no chat template; one can be given: %s, or Jinja text",
                           builtin_chat_names());
    }
    out->source = own;
    return {};
  }
  out->source = builtin_chat_template(given);
  out->turn_end = builtin_chat_turn_end(given);
  if (!out->source.empty()) return {};
  out->source = given;
  if (out->source.find('{') != std::string_view::npos) return {};
  return Status::error(MOE_ERR_ARGUMENT, "chat_template: expected %s, or Jinja text, found '%.60s'",
                       builtin_chat_names(), given);
}

Status choose_thinking(const moe_chat_params& p, Thinking* out) {
  const int value = enum_number(p.thinking);
  if (value < MOE_THINKING_DEFAULT || value > MOE_THINKING_OFF) {
    return Status::error(MOE_ERR_ARGUMENT, "params.thinking: expected 0..2, found %d", value);
  }
  *out = value == MOE_THINKING_ON    ? Thinking::kOn
         : value == MOE_THINKING_OFF ? Thinking::kOff
                                     : Thinking::kDefault;
  return {};
}

Status read_variables(const moe_chat_params& p, Array<ChatVariable>* out) {
  if (p.n_variables < 0 || (p.n_variables > 0 && p.variables == nullptr)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "params.variables: %d strings at a NULL or negative count", p.n_variables);
  }
  for (int32_t i = 0; i < p.n_variables; ++i) {
    const std::string_view text = p.variables[i] == nullptr ? "" : p.variables[i];
    const size_t at = text.find('=');
    if (at == std::string_view::npos) {
      return Status::error(MOE_ERR_ARGUMENT, "variables: expected NAME=VALUE, found '%.60s'",
                           p.variables[i] == nullptr ? "" : p.variables[i]);
    }
    MOE_TRY(out->push({slice(text, 0, at), slice(text, at + 1)}));
  }
  return {};
}

// Today in UTC, "YYYY-MM-DD" (days to civil date: https://howardhinnant.github.io/date_algorithms).
struct Today {
  Today() {
    const int64_t z = calendar_seconds() / 86400 + 719468;
    const int64_t era = z / 146097;
    const int64_t doe = z - era * 146097;
    const int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    const int64_t mp = (5 * doy + 2) / 153;
    const int64_t month = mp < 10 ? mp + 3 : mp - 9;
    put(0, 4, yoe + era * 400 + (month <= 2 ? 1 : 0));
    put(5, 2, month);
    put(8, 2, doy - (153 * mp + 2) / 5 + 1);
  }
  void put(size_t at, size_t n, int64_t value) {
    for (size_t i = n; i > 0; --i, value /= 10)
      text[at + i - 1] = static_cast<char>('0' + value % 10);
  }
  char text[11] = "0000-00-00";
};

Status create_chat(moe_session* session, const moe_chat_params* given, moe_chat** out) {
  MOE_TRY(check_session(session));
  if (out == nullptr) return null_argument("out");
  moe_chat_params p{};
  MOE_TRY(read_params(given, "params", &p));
  MOE_TRY(check_reserved(p.reserved));
  const moe_model* model = session->model.get();
  if (!model->text.tokenizer) {
    return Status::error(MOE_ERR_UNSUPPORTED, "a chat needs a model with a tokenizer");
  }
  const Allocator& allocator = model->env->allocator;
  Array<ChatVariable> variables(allocator);
  MOE_TRY(read_variables(p, &variables));
  ChatOptions options;
  MOE_TRY(choose_template(model, p.chat_template, &options));
  MOE_TRY(choose_thinking(p, &options.thinking));
  options.variables = variables.span();
  const Today today;
  options.date = p.date == nullptr ? today.text : p.date;
  MOE_ASSIGN(Box<moe_chat> handle, make_box<moe_chat>(allocator, *session));
  MOE_ASSIGN(handle->chat,
             Chat::create(*session->session, *model->text.tokenizer, options, allocator));
  if (p.system != nullptr) {
    const std::string_view system = p.system;
    MOE_TRY(handle->chat->set_system(&system));
  }
  *out = handle.release();
  return {};
}

void destroy(moe_chat* chat) {
  const Ref<moe_model> model = chat->model;  // its allocator frees the chat
  chat->~moe_chat();
  deallocate(model->env->allocator, chat, sizeof *chat);
}

// NULL: none.
Status set_session(moe_chat* chat, moe_session* session) {
  if (chat == nullptr) return null_argument("chat");
  Ref<moe_session> next(session);  // afterwards the old one, released without the lock
  LockGuard guard(chat->mutex);
  MOE_TRY(chat->chat->set_session(session == nullptr ? nullptr : session->session.get()));
  std::swap(chat->session, next);
  return {};
}

Status get_message(const moe_chat* chat, size_t index, moe_chat_message* out) {
  if (chat == nullptr) return null_argument("chat");
  MOE_TRY(check_out_struct(out, "out"));
  const std::span<const StoredMessage> messages = chat->chat->messages();
  if (index >= messages.size()) {
    return Status::error(MOE_ERR_RANGE, "index: expected less than %zu, found %zu", messages.size(),
                         index);
  }
  const StoredMessage& m = messages[index];
  moe_chat_message value{};
  value.role = m.role.c_str();
  value.content = m.shown_content().data();
  value.n_bytes = m.shown_content().size();
  value.thinking = m.shown_thinking().data();
  value.n_thinking_bytes = m.shown_thinking().size();
  value.members = m.members.c_str();
  write_struct(value, out);
  return {};
}

Status render(const moe_chat* chat, bool begin_reply, char* text, size_t capacity,
              size_t* n_bytes) {
  if (chat == nullptr) return null_argument("chat");
  if (n_bytes == nullptr) return null_argument("n_bytes");
  ChatText out(*chat->allocator);
  MOE_TRY(chat->chat->render(begin_reply, out));
  String whole(*chat->allocator);
  MOE_TRY(whole.assign(out.view()));
  return write_text(whole.c_str(), whole.size(), text, capacity, n_bytes);
}

Status tokens(const moe_chat* chat, bool begin_reply, int32_t* tokens, size_t capacity,
              size_t* n_tokens) {
  if (chat == nullptr) return null_argument("chat");
  if (n_tokens == nullptr) return null_argument("n_tokens");
  Array<int32_t> ids(*chat->allocator);
  MOE_TRY(chat->chat->tokens(begin_reply, ids));
  return write_array(ids.data(), ids.size(), tokens, capacity, n_tokens);
}

/// Whether a reply must call a tool, and which.
struct Choice {
  moe_tool_choice kind;
  std::string_view tool;
};

// The grammar of the calls of these tools; null if they are free.
Status make_calls(const moe_chat& chat, std::string_view tools, const Choice& choice,
                  Ref<moe_grammar>* out) {
  *out = Ref<moe_grammar>(nullptr);
  const bool required = choice.kind != MOE_TOOLS_AUTO;
  if (!required && !any_strict(tools)) return {};
  Box<moe_grammar> made;
  MOE_TRY(make_grammar(*chat.model, &made));
  MOE_TRY(made->grammar->create_calls(
      *chat.chat->tool_format(), tools,
      {.required = required, .one = choice.kind == MOE_TOOLS_ONE, .only = choice.tool},
      *chat.model->text.tokenizer));
  *out = Ref<moe_grammar>(made.get());
  moe_grammar_free(made.release());  // the reference stays
  return {};
}

// Without tools nothing can be chosen any more.
Status set_tools(moe_chat* chat, std::string_view tools) {
  if (chat == nullptr) return null_argument("chat");
  bool none = false;
  MOE_TRY(chat->chat->check_tools(tools, &none));
  Ref<moe_grammar> calls(nullptr);
  String kept(*chat->allocator);
  if (!none) {
    MOE_TRY(make_calls(*chat, tools, {chat->choice, chat->tool.view()}, &calls));
    MOE_TRY(kept.assign(tools));
  }
  MOE_TRY(chat->chat->set_tools(tools));
  LockGuard guard(chat->mutex);
  std::swap(chat->calls, calls);
  chat->tools = std::move(kept);
  if (!none) return {};
  chat->choice = MOE_TOOLS_AUTO;
  chat->tool.clear();
  return {};
}

Status set_tool_choice(moe_chat* chat, moe_tool_choice choice, const char* name) {
  if (chat == nullptr) return null_argument("chat");
  const int number = enum_number(choice);
  if (number < MOE_TOOLS_AUTO || number > MOE_TOOLS_ONE) {
    return Status::error(MOE_ERR_ARGUMENT, "choice: expected 0..2, found %d", number);
  }
  const bool required = number != MOE_TOOLS_AUTO;
  const std::string_view tool = name == nullptr ? "" : name;
  if (!required && !tool.empty()) {
    return Status::error(MOE_ERR_ARGUMENT, "name: only for a call that is required, found '%.60s'",
                         name);
  }
  if (required && chat->tools.empty()) {
    return Status::error(MOE_ERR_STATE, "the chat has no tools: moe_chat_set_tools gives it some");
  }
  Ref<moe_grammar> calls(nullptr);
  if (!chat->tools.empty()) {
    MOE_TRY(make_calls(*chat, chat->tools.view(), {choice, tool}, &calls));
  }
  String kept(*chat->allocator);
  MOE_TRY(kept.assign(tool));
  LockGuard guard(chat->mutex);
  std::swap(chat->calls, calls);
  chat->choice = choice;
  chat->tool = std::move(kept);
  return {};
}

Ref<moe_grammar> calls_of(moe_chat* chat) {
  LockGuard guard(chat->mutex);
  return chat->calls;
}

Status reply(moe_chat* chat, const moe_generate_params* given, moe_chat_result* out) {
  if (chat == nullptr) return null_argument("chat");
  MOE_TRY(check_env(chat->model->env.get()));
  MOE_TRY(check_out_struct(out, "out"));
  GenerateCall call(*chat->allocator);
  MOE_TRY(call.read(given, *chat->model));
  call.hold_calls(calls_of(chat));
  ChatReply r;
  MOE_TRY(chat->chat->reply(call.options, &r));
  moe_chat_result value{};
  describe_result(r, &value);
  value.n_reused = r.n_reused;
  value.n_thinking = r.n_thinking;
  value.n_tool_calls = r.n_calls;
  write_struct(value, out);
  return {};
}

Status begin_reply(moe_chat* chat, const moe_generate_params* given, moe_generation** out) {
  if (chat == nullptr) return null_argument("chat");
  MOE_TRY(check_env(chat->model->env.get()));
  if (out == nullptr) return null_argument("out");
  moe_session* session = nullptr;
  {
    LockGuard guard(chat->mutex);
    session = chat->session.get();
  }
  if (session == nullptr) {
    return Status::error(MOE_ERR_STATE,
                         "the chat has no session: moe_chat_set_session gives it one");
  }
  MOE_ASSIGN(Box<moe_generation> made,
             make_box<moe_generation>(*chat->allocator, *session, *chat->allocator));
  MOE_TRY(made->read(given));
  made->call.hold_calls(calls_of(chat));
  MOE_ASSIGN(made->steps, chat->chat->begin_reply(made->call.options));
  *out = made.release();
  return {};
}

}  // namespace
}  // namespace moe

const char* moe_chat_template_name(size_t index) { return moe::builtin_chat_name(index); }

moe_status moe_chat_create(moe_session* session, const moe_chat_params* params, moe_chat** out,
                           moe_error* error) {
  return moe::deliver(moe::create_chat(session, params, out), error);
}

void moe_chat_free(moe_chat* chat) {
  if (chat != nullptr) moe::destroy(chat);
}

moe_status moe_chat_set_session(moe_chat* chat, moe_session* session, moe_error* error) {
  return moe::deliver(moe::set_session(chat, session), error);
}

moe_status moe_chat_add(moe_chat* chat, const char* role, const char* content, size_t n_bytes,
                        moe_error* error) {
  if (chat == nullptr) return moe::deliver(moe::null_argument("chat"), error);
  if (role == nullptr) return moe::deliver(moe::null_argument("role"), error);
  if (content == nullptr && n_bytes != 0) {
    return moe::deliver(moe::null_argument("content"), error);
  }
  return moe::deliver(chat->chat->add(role, {n_bytes == 0 ? "" : content, n_bytes}), error);
}

moe_status moe_chat_add_message(moe_chat* chat, const char* json, size_t n_bytes,
                                moe_error* error) {
  if (chat == nullptr) return moe::deliver(moe::null_argument("chat"), error);
  if (json == nullptr) return moe::deliver(moe::null_argument("json"), error);
  return moe::deliver(chat->chat->add_message({json, n_bytes}), error);
}

moe_status moe_chat_set_tools(moe_chat* chat, const char* json, size_t n_bytes, moe_error* error) {
  const std::string_view text = json == nullptr ? "" : std::string_view(json, n_bytes);
  return moe::deliver(moe::set_tools(chat, text), error);
}

moe_status moe_chat_set_tool_choice(moe_chat* chat, moe_tool_choice choice, const char* name,
                                    moe_error* error) {
  return moe::deliver(moe::set_tool_choice(chat, choice, name), error);
}

const char* moe_chat_tool_format(const moe_chat* chat) {
  const moe::ToolFormat* format = chat == nullptr ? nullptr : chat->chat->tool_format();
  return format == nullptr ? nullptr : format->name;
}

moe_status moe_chat_truncate(moe_chat* chat, size_t n_messages, moe_error* error) {
  if (chat == nullptr) return moe::deliver(moe::null_argument("chat"), error);
  return moe::deliver(chat->chat->truncate(n_messages), error);
}

moe_status moe_chat_remove_oldest(moe_chat* chat, size_t max_tokens, size_t* n_removed,
                                  moe_error* error) {
  if (chat == nullptr) return moe::deliver(moe::null_argument("chat"), error);
  size_t n = 0;
  const moe::Status status = chat->chat->remove_oldest(max_tokens, &n);
  if (status.ok() && n_removed != nullptr) *n_removed = n;
  return moe::deliver(status, error);
}

moe_status moe_chat_set_system(moe_chat* chat, const char* system, moe_error* error) {
  if (chat == nullptr) return moe::deliver(moe::null_argument("chat"), error);
  const std::string_view text = system == nullptr ? "" : system;
  return moe::deliver(chat->chat->set_system(system == nullptr ? nullptr : &text), error);
}

size_t moe_chat_message_count(const moe_chat* chat) {
  return chat == nullptr ? 0 : chat->chat->messages().size();
}

moe_status moe_chat_get_message(const moe_chat* chat, size_t index, moe_chat_message* out,
                                moe_error* error) {
  return moe::deliver(moe::get_message(chat, index, out), error);
}

moe_status moe_chat_render(const moe_chat* chat, bool begin_reply, char* text, size_t capacity,
                           size_t* n_bytes, moe_error* error) {
  return moe::deliver(moe::render(chat, begin_reply, text, capacity, n_bytes), error);
}

moe_status moe_chat_tokens(const moe_chat* chat, bool begin_reply, int32_t* tokens, size_t capacity,
                           size_t* n_tokens, moe_error* error) {
  return moe::deliver(moe::tokens(chat, begin_reply, tokens, capacity, n_tokens), error);
}

moe_status moe_chat_reply(moe_chat* chat, const moe_generate_params* params, moe_chat_result* out,
                          moe_error* error) {
  return moe::deliver(moe::reply(chat, params, out), error);
}

moe_status moe_chat_begin_reply(moe_chat* chat, const moe_generate_params* params,
                                moe_generation** out, moe_error* error) {
  return moe::deliver(moe::begin_reply(chat, params, out), error);
}
