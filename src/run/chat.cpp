// SPDX-License-Identifier: MIT
// Renders a conversation through its template, evaluates the part that is new, removes the oldest
// turns if there is no room, and collects replies.
#include "src/run/chat.h"

#include "src/base/number.h"
#include "src/run/answer_gate.h"
#include "src/run/chat_change.h"
#include "src/run/reply_collector.h"
#include "src/run/session_call.h"
#include "src/text/chat/tools/message.h"

namespace moe {
namespace {

constexpr size_t kMaxVariables = 64;

Status need_session(const Session* session) {
  if (session != nullptr) return {};
  return Status::error(MOE_ERR_STATE, "the chat has no session: moe_chat_set_session gives it one");
}

Status no_grammar_with_tools(const GenerateOptions& options, bool tools) {
  if (options.grammar == nullptr || !tools) return {};
  return Status::error(MOE_ERR_ARGUMENT,
                       "a grammar: not together with tools, as it would ban calls: leave one out");
}

// Adds a hint to a template's error.
Status template_error(const Status& status) {
  if (status.ok() || status.code() == MOE_ERR_MEMORY || status.code() == MOE_ERR_ARGUMENT ||
      status.code() == MOE_ERR_CANCELLED) {
    return status;
  }
  return Status::error(status.code(), "%.300s; another template can be given (--template)",
                       status.text());
}

// Counts the first ids that the session holds already.
Status count_reused(const Session& session, std::span<const int32_t> ids, size_t* n_reused) {
  const size_t context = static_cast<size_t>(session.context());
  const std::span<const int32_t> held = session.tokens();
  if (ids.size() >= context) {
    return Status::error(MOE_ERR_TOO_LONG,
                         "the conversation has %zu tokens, the context holds %zu: remove messages "
                         "or use a larger context",
                         ids.size(), context);
  }
  size_t n = 0;
  while (n < ids.size() && n < held.size() && held[n] == ids[n]) ++n;
  *n_reused = n;
  return {};
}

bool cancel_asked(const void* state) {
  return !check_cancel(*static_cast<const SessionState*>(state)).ok();
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > 64 || is_digit(text[0])) return false;
  for (const char c : text) {
    if (!is_letter(c) && c != '_' && !is_digit(c)) return false;
  }
  return true;
}

Status make_message(std::string_view role, std::string_view content, StoredMessage& out) {
  MOE_TRY(out.role.assign(role));
  return out.content.assign(content);
}

/// A reply in steps: what stands between its generation and the caller.
struct SteppedReply {
  SteppedReply(const GenerateOptions& given, const ThinkingTags& tags, const Tokenizer& tokenizer,
               bool inside, const Allocator& a)
      : allocator(a),
        options(given),
        stops(a),
        tools(a),
        collector(options, tags, tokenizer, inside, a),
        gate(tags, tokenizer, inside, a) {}

  static Status finish(void* object, Finish* finish) {
    return static_cast<SteppedReply*>(object)->collector.finish(finish);
  }
  static void destroy(void* object) {
    auto* reply = static_cast<SteppedReply*>(object);
    const Allocator& allocator = reply->allocator;
    reply->~SteppedReply();
    deallocate(allocator, reply, sizeof *reply);
  }

  const Allocator& allocator;
  const GenerateOptions options;  // of the caller
  Array<int32_t> stops;
  String tools;  // a copy, as of the options
  Collector collector;
  ThinkingGate gate;
};

// For the ids of calls: they differ by prompt and by seed, unless the seed has no effect. FNV-1a
// over the prompt's tokens.
uint64_t seed_of_ids(std::span<const int32_t> prompt, const GenerateOptions& options) {
  const SamplingConfig& sampling = options.sampling;
  uint64_t hash = 0xcbf29ce484222325 ^ (sampling.temperature > 0 ? sampling.seed : 0);
  for (const int32_t id : prompt) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3;
  return hash;
}

// The least i below n for which fits(i) is true, or n. Behind the first true one all are expected
// to be true. The first ones are tried first, then ones twice as far apart.
template <class Fits>
Result<size_t> first_that_fits(size_t n, Fits&& fits) {
  size_t low = 0;  // those before it do not fit
  size_t high = n;
  for (size_t step = 1; low < n && high == n; step *= 2) {
    const size_t at = std::min(low + step, n) - 1;
    MOE_ASSIGN(const bool fit, fits(at));
    (fit ? high : low) = fit ? at : at + 1;
  }
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    MOE_ASSIGN(const bool fit, fits(middle));
    (fit ? high : low) = fit ? middle : middle + 1;
  }
  return high;
}

// The options of a generation whose pieces `collector` takes.
GenerateOptions collected(const GenerateOptions& given, Collector& collector, ThinkingGate& gate,
                          std::span<const int32_t> stops, const ThinkingTags& tags) {
  GenerateOptions options = given;
  const bool calls = given.calls != nullptr;
  if (calls) options.grammar = given.calls;
  options.more_eos = stops;
  options.callback = Collector::call;
  options.user = &collector;
  options.all_text = true;
  options.in_parts = true;  // such as thinking and answer
  options.headers = collector.headers();
  // A call in a channel has its name in the header, which a grammar of calls reads from the start.
  if (!calls || !tags.channels) options.gate = gate.gate();
  return options;
}

}  // namespace

Chat::Chat(Session& session, const Tokenizer& tokenizer, const Allocator& allocator)
    : allocator_(allocator),
      model_(session.model()),
      session_(&session),
      tokenizer_(tokenizer),
      variables_(allocator),
      date_(allocator),
      bos_(allocator),
      eos_(allocator),
      stops_(allocator),
      system_(allocator),
      messages_(allocator),
      tools_(allocator) {}

Result<Box<Chat>> Chat::create(Session& session, const Tokenizer& tokenizer,
                               const ChatOptions& options, const Allocator& allocator) {
  MOE_ASSIGN(Box<Chat> chat, make_box<Chat>(allocator, session, tokenizer, allocator));
  MOE_TRY(chat->init(options));
  return chat;
}

Status Chat::init(const ChatOptions& options) {
  if (!options.date.empty() && !is_date(options.date)) {
    return Status::error(MOE_ERR_ARGUMENT, "date: expected YYYY-MM-DD, found '%.*s'",
                         static_cast<int>(std::min<size_t>(options.date.size(), 40)),
                         options.date.data());
  }
  MOE_TRY(date_.assign(options.date));
  Result<Box<ChatTemplate>> made = ChatTemplate::create(options.source, allocator_);
  MOE_TRY(template_error(made.status()));
  template_ = std::move(made.value());
  tags_ = thinking_tags(options.source);
  format_ = moe::tool_format(options.source);
  MOE_TRY(choose_tokens(options.turn_end));
  if (options.variables.size() > kMaxVariables) {
    return Status::error(MOE_ERR_RANGE, "variables: at most %zu, found %zu", kMaxVariables,
                         options.variables.size());
  }
  for (const ChatVariable& v : options.variables) MOE_TRY(add_variable(v.name, v.value));
  return choose_thinking(options.thinking);
}

Status Chat::add_variable(std::string_view name, std::string_view value) {
  if (!is_name(name) || name == "messages" || name == "add_generation_prompt") {
    return Status::error(MOE_ERR_ARGUMENT, "variables: '%.*s' is not a valid name",
                         static_cast<int>(std::min<size_t>(name.size(), 60)), name.data());
  }
  Variable variable(allocator_);
  MOE_TRY(variable.name.assign(name));
  MOE_TRY(variable.value.assign(value));
  return variables_.push(std::move(variable));
}

Status Chat::choose_thinking(Thinking thinking) {
  if (thinking == Thinking::kDefault) return {};
  bool any = false;
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!template_->uses(name)) continue;
    any = true;
    MOE_TRY(add_variable(name, thinking == Thinking::kOn ? "true" : "false"));
  }
  if (any) return {};
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "thinking cannot be switched: the chat template uses neither "
                       "enable_thinking nor thinking");
}

// The template's spelling of BOS and EOS: the tokenizer's tokens, or the model's if it has none.
Status Chat::choose_tokens(std::string_view turn_end) {
  const ModelConfig& config = model_.config();
  const std::span<const int32_t> prefix = tokenizer_.prefix();
  int32_t bos = tokenizer_.bos_id();
  int32_t eos = tokenizer_.eos_id();
  if (bos < 0 && eos < 0) {
    bos = config.bos_token_id;
    if (!config.eos_token_ids.empty()) eos = config.eos_token_ids[0];
  }
  const auto spell = [&](int32_t id, String& to) -> Status {
    if (id < 0 || id >= tokenizer_.n_vocab()) return {};
    return to.assign(tokenizer_.piece(id));
  };
  MOE_TRY(spell(bos < 0 && !prefix.empty() ? prefix[0] : bos, bos_));
  MOE_TRY(spell(eos, eos_));
  if (template_->uses("adds_bos"))
    MOE_TRY(add_variable("adds_bos", prefix.empty() ? "false" : "true"));
  if (eos >= 0) MOE_TRY(stops_.push(eos));
  const int32_t call = tags_.channels ? tokenizer_.token_id("<|call|>") : -1;
  if (call >= 0) MOE_TRY(stops_.push(call));
  const int32_t end = turn_end.empty() ? -1 : tokenizer_.token_id(turn_end);
  return end >= 0 ? stops_.push(end) : Status();
}

Status Chat::set_system(const std::string_view* text) {
  const Change change(busy_);
  MOE_TRY(change.status());
  String fresh(allocator_);
  if (text != nullptr) MOE_TRY(fresh.assign(*text));
  system_ = std::move(fresh);
  has_system_ = text != nullptr;
  return {};
}

Status Chat::add(std::string_view role, std::string_view content) {
  const Change change(busy_);
  MOE_TRY(change.status());
  if (role.empty() || role.size() > kMaxRoleBytes) {
    return Status::error(MOE_ERR_RANGE, "role: expected 1..%zu bytes, found %zu", kMaxRoleBytes,
                         role.size());
  }
  StoredMessage message(allocator_);
  MOE_TRY(make_message(role, content, message));
  return messages_.push(std::move(message));
}

Status Chat::truncate(size_t n_messages) {
  const Change change(busy_);
  MOE_TRY(change.status());
  if (n_messages > messages_.size()) {
    return Status::error(MOE_ERR_RANGE, "n_messages: expected 0..%zu, found %zu", messages_.size(),
                         n_messages);
  }
  while (messages_.size() > n_messages) messages_.pop();
  return {};
}

size_t Chat::next_turn(size_t from) const {
  while (from < messages_.size() && messages_[from].role.view() != "user") ++from;
  return from;
}

// Whether the conversation suits the template and has at most max_tokens tokens without `gap`; *why
// says why not.
Result<bool> Chat::fits_without(Gap gap, size_t max_tokens, const SessionState& state,
                                Status* why) const {
  MOE_TRY(check_cancel(state));
  jinja::Limits limits;
  limits.cancelled = cancel_asked;
  limits.user = &state;
  ChatText text(allocator_);
  Array<int32_t> ids(allocator_);
  *why = render(true, gap, limits, text);
  // Fewer turns may suit the template, or its limits.
  if (why->code() == MOE_ERR_TEXT || why->code() == MOE_ERR_TOO_LONG) return false;
  MOE_TRY(*why);
  MOE_TRY(encode(text, ids));
  if (ids.size() <= max_tokens) return true;
  *why = Status::error(MOE_ERR_TOO_LONG, "the last turn alone has %zu tokens; expected at most %zu",
                       ids.size(), max_tokens);
  return false;
}

Status Chat::remove_oldest(size_t max_tokens, size_t* n_removed) {
  const Change change(busy_);
  MOE_TRY(change.status());
  MOE_TRY(need_session(session_));
  const SessionCall call(*session_);  // so that it can be cancelled
  MOE_TRY(call.status());
  const size_t first = next_turn(0);
  Array<size_t> ends(allocator_);  // of what may go: nothing, the first turn, the first two ...
  MOE_TRY(ends.push(first));
  for (size_t at = next_turn(first + 1); at < messages_.size(); at = next_turn(at + 1)) {
    MOE_TRY(ends.push(at));
  }
  const size_t n = ends.size();
  Status why;
  const auto fits = [&](size_t i) {
    return fits_without({first, ends[i]}, max_tokens, call.state(), &why);
  };
  MOE_ASSIGN(size_t found, first_that_fits(n, fits));
  if (found == n) {
    // The template may refuse what the last cuts leave, and take an earlier one.
    const Status outcome = why;
    for (size_t i = n; i-- > 0 && why.code() == MOE_ERR_TEXT;) {
      MOE_ASSIGN(const bool fit, fits(i));
      if (!fit) continue;
      MOE_ASSIGN(found, first_that_fits(i + 1, fits));
      break;
    }
    if (found == n) return outcome;
  }
  const size_t end = ends[found];
  *n_removed = end - first;
  if (end == first) return {};
  std::move(messages_.begin() + end, messages_.end(), messages_.begin() + first);
  for (size_t i = first; i < end; ++i) messages_.pop();
  return {};
}

Status Chat::set_session(Session* session) {
  const Change change(busy_);
  MOE_TRY(change.status());
  if (session != nullptr && &session->model() != &model_) {
    return Status::error(MOE_ERR_ARGUMENT, "the session is of another model");
  }
  session_ = session;
  return {};
}

Status Chat::render(bool begin_reply, Gap gap, const jinja::Limits& limits, ChatText& out) const {
  Array<ChatMessage> messages(allocator_);
  MOE_TRY(messages.reserve(messages_.size() + 1));
  Array<String> texts(allocator_);  // calls as the template gets them
  MOE_TRY(texts.reserve(messages_.size()));
  if (has_system_) MOE_TRY(messages.push({"system", system_.view(), {}}));
  for (size_t i = 0; i < messages_.size(); ++i) {
    if (i >= gap.first && i < gap.end) continue;
    const StoredMessage& m = messages_[i];
    // A template that ignores thinking gets only the answer.
    const bool thinks = tags_.named && !m.thinking.empty();
    ChatMessage message{m.role.view(), thinks ? m.content.view() : m.shown_content()};
    if (thinks) message.thinking = m.thinking.view();
    if (m.calls) MOE_TRY(add_calls(m, texts, message));
    if (!m.calls) message.members = m.members.view();
    MOE_TRY(messages.push(message));
  }
  return render_messages(messages.span(), tools_.view(), begin_reply, limits, out);
}

Status Chat::render_messages(std::span<const ChatMessage> messages, std::string_view tools,
                             bool begin_reply, const jinja::Limits& limits, ChatText& out) const {
  Array<ChatVariable> variables(allocator_);
  for (const Variable& v : variables_) {
    MOE_TRY(variables.push({v.name.view(), v.value.view()}));
  }
  ChatInput input;
  input.messages = messages;
  input.add_generation_prompt = begin_reply;
  input.variables = variables.span();
  input.bos_token = bos_.view();
  input.eos_token = eos_.view();
  input.date = date_.view();
  input.think_open = tags_.open;
  input.think_close = tags_.close;
  input.tools = tools;
  return template_error(template_->render(input, out, limits));
}

Status Chat::encode(const ChatText& text, Array<int32_t>& ids) const {
  return tokenizer_.encode_marked(text.view(), text.marks.span(), ids);
}

Status Chat::tokens(bool begin_reply, Array<int32_t>& ids) const {
  ChatText text(allocator_);
  MOE_TRY(render(begin_reply, text));
  return encode(text, ids);
}

// True if the rendered template ends inside thinking.
bool Chat::begins_inside(const ChatText& text) const {
  std::string_view rest = text.view();
  while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\n')) rest.remove_suffix(1);
  if (tags_.channels || !rest.ends_with(tags_.open)) return false;
  for (size_t i = rest.size() - tags_.open.size(); i < rest.size(); ++i) {
    if (text.marks[i] != 0) return false;
  }
  return true;
}

Result<Box<SteppedGeneration>> Chat::begin_reply(const GenerateOptions& given) {
  const Change change(busy_);
  MOE_TRY(change.status());
  MOE_TRY(need_session(session_));
  MOE_TRY(no_grammar_with_tools(given, !tools_.empty()));
  ChatText text(allocator_);
  Array<int32_t> ids(allocator_);
  MOE_TRY(render(true, {}, {}, text));
  MOE_TRY(encode(text, ids));
  {
    const SessionCall call(*session_);
    MOE_TRY(call.status());
    const std::span<const int32_t> held = session_->tokens();
    if (!std::equal(held.begin(), held.end(), ids.begin(), ids.end())) {
      return Status::error(MOE_ERR_STATE,
                           "the session does not hold the conversation: evaluate what "
                           "moe_chat_tokens gives with begin_reply");
    }
  }
  MOE_ASSIGN(Box<SteppedReply> made, make_box<SteppedReply>(allocator_, given, tags_, tokenizer_,
                                                            begins_inside(text), allocator_));
  MOE_TRY(made->stops.append(stops_.data(), stops_.size()));
  MOE_TRY(made->tools.assign(tools_.view()));
  if (!tools_.empty()) {
    MOE_TRY(
        made->collector.find_calls(*format_, made->tools.view(), seed_of_ids(ids.span(), given)));
  }
  const GenerateOptions options =
      collected(given, made->collector, made->gate, made->stops.span(), tags_);
  const PieceFilter filter = {made.release(), SteppedReply::finish, SteppedReply::destroy};
  return SteppedGeneration::create(*session_, &tokenizer_, options, filter, allocator_);
}

Status Chat::reply(const GenerateOptions& given, ChatReply* out) {
  const Change change(busy_);
  MOE_TRY(change.status());
  MOE_TRY(need_session(session_));
  MOE_TRY(no_grammar_with_tools(given, !tools_.empty()));
  // A single session call from here on, so that cancel works at any time.
  const SessionCall call(*session_);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  jinja::Limits limits;
  limits.cancelled = cancel_asked;
  limits.user = &state;
  ChatText text(allocator_);
  Array<int32_t> ids(allocator_);
  MOE_TRY(render(true, {}, limits, text));
  MOE_TRY(encode(text, ids));
  MOE_TRY(check_cancel(state));
  if (ids.empty()) {
    return Status::error(MOE_ERR_STATE, "the conversation is empty: there is nothing to reply to");
  }
  MOE_TRY(messages_.reserve(messages_.size() + 1));
  size_t n_reused = 0;
  MOE_TRY(count_reused(*session_, ids.span(), &n_reused));
  const std::span<const int32_t> rest(ids.data() + n_reused, ids.size() - n_reused);
  MOE_TRY(check_generate(state, &tokenizer_, rest, static_cast<int32_t>(n_reused), given));
  Collector collector(given, tags_, tokenizer_, begins_inside(text), allocator_);
  MOE_TRY(make_message("assistant", {}, collector.message));
  if (!tools_.empty()) {
    MOE_TRY(choose_call_style());
    MOE_TRY(collector.find_calls(*format_, tools_.view(), seed_of_ids(ids.span(), given)));
  }
  ThinkingGate gate(tags_, tokenizer_, begins_inside(text), allocator_);
  const GenerateOptions options = collected(given, collector, gate, stops_.span(), tags_);
  ChatReply made;
  rewind_to(state, n_reused);
  MOE_TRY(generate(state, &tokenizer_, rest, options, &made));
  MOE_TRY(collector.finish(&made.finish));
  MOE_TRY(name_calls(collector.message));
  MOE_TRY(messages_.push(std::move(collector.message)));
  made.n_prompt = static_cast<int32_t>(ids.size());  // with those in the session
  made.n_reused = static_cast<int32_t>(n_reused);
  made.n_thinking = collector.n_thinking;
  made.n_calls = collector.n_calls();
  *out = made;
  return {};
}

}  // namespace moe
