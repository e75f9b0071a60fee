// SPDX-License-Identifier: MIT
// The session of a conversation: its context and its file.

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/chat/chat_input.h"
#include "cli/chat/talk.h"
#include "cli/io/units.h"

namespace moe_cli {

// If a session is too small for the conversation and the reply, replaces it by one of at least
// twice the context, if the model supports it and --context does not prevent it.
void Talk::make_room() {
  moe_error error;
  size_t n = 0;
  check(moe_chat_tokens(chat_, true, nullptr, 0, &n, &error), error);
  const int more = options_.sampling.max_tokens;
  grow(static_cast<int64_t>(n) + (more == 0 ? kOpenEnd / 2 : more));
  if (shifts_) shift(n);
}

// Drops the oldest turns if a context that cannot grow has no room for a reply to n_tokens tokens.
// A quarter of it becomes free at once: what is left is evaluated again.
void Talk::shift(size_t n_tokens) {
  const auto context = static_cast<size_t>(moe_session_context(session_.get()));
  const auto limit = static_cast<size_t>(options_.sampling.max_tokens);
  const size_t room = limit == 0 ? context / 4 : std::min(limit, context / 4);
  if (n_tokens + room <= context) return;
  moe_error error;
  moe_status status = MOE_OK;
  for (const size_t most : {context - context / 4, context - 1}) {  // a long message needs more
    status = moe_chat_remove_oldest(chat_, most, &n_dropped_, &error);
    if (status != MOE_ERR_TOO_LONG && status != MOE_ERR_TEXT) break;
  }
  if (status == MOE_ERR_TEXT && n_tokens >= context) {
    throw CallError(status, std::string("the context is full, and the template refuses what "
                                        "dropping the oldest turns would leave: ") +
                                error.text + "; /clear starts again");
  }
  if (status == MOE_ERR_TOO_LONG || status == MOE_ERR_TEXT) return;  // the reply says what is wrong
  check(status, error);
  if (n_dropped_ == 0) return;
  style_.note("the context of " + std::to_string(context) + " tokens is full: the oldest " +
              counted(n_dropped_, "message") + " of " +
              std::to_string(n_dropped_ + moe_chat_message_count(chat_)) +
              " dropped, the rest is read again");
}

moe_chat_message Talk::message(size_t index) const {
  moe_chat_message m{};
  m.struct_size = sizeof m;
  moe_error error;
  check(moe_chat_get_message(chat_, index, &m, &error), error);
  return m;
}

// Whether there is more than the last turn.
bool Talk::has_older_turns() const {
  size_t n_turns = 0;
  for (size_t i = 0; i < moe_chat_message_count(chat_); ++i) {
    if (role_of(i) == "user") ++n_turns;
  }
  return n_turns > 1;
}

void Talk::grow(int64_t needed) {
  const int64_t now = moe_session_context(session_.get());
  const int64_t most = model_context(model_);
  if (options_.model.context != 0 || now == most || needed <= now) return;
  reopen(static_cast<int>(std::min(most, std::max(2 * now, needed))));
}

// Opens an empty session with another context, or with the old one if memory is insufficient.
void Talk::reopen(int context) {
  const int now = moe_session_context(session_.get());
  if (context == now) return;
  ModelOptions other = options_.model;
  other.context = context;
  report_skips();  // of the old session
  moe_error error;
  check(moe_chat_set_session(chat_, nullptr, &error), error);
  session_.reset();  // --memory need not cover both
  try {
    session_ = open_session(other, model_);
  } catch (const CallError& e) {
    if (e.code != MOE_ERR_BUDGET && e.code != MOE_ERR_MEMORY) throw;
    other.context = now;
    session_ = open_session(other, model_);
  }
  check(moe_chat_set_session(chat_, session_.get(), &error), error);
}

// Advice that is possible here: the library speaks of sessions.
void Talk::name_context(moe_error* error) const {
  moe_error ignored;
  size_t n = 0;
  const int most = model_context(model_), now = moe_session_context(session_.get());
  if (moe_chat_tokens(chat_, true, nullptr, 0, &n, &ignored) != MOE_OK) return;
  if (n < static_cast<size_t>(now)) return;  // another limit, such as --chunk
  const char* drop =
      !shifts_ && has_older_turns() ? "; --shift, or /shift here, drops the oldest turns" : "";
  std::snprintf(
      error->text, sizeof error->text, "%s%s%s",
      too_long("the conversation has", n, static_cast<size_t>(now), static_cast<size_t>(most))
          .c_str(),
      drop, now < most ? "" : "; /clear starts again, and a shorter message may fit");
}

// After a reply that the end of the context cut.
void Talk::tell_full() const {
  const int most = model_context(model_), now = moe_session_context(session_.get());
  std::string text = "the context of " + std::to_string(now) + " tokens is full; ";
  if (now < most && options_.model.context == 0) {
    text += "the next message enlarges it";
  } else if (shifts_) {
    text += "the next message drops the oldest turns";
  } else {
    if (now < most) {
      text += "--context can be at most " + std::to_string(most) + " with this model; ";
    }
    text += "--shift, or /shift here, drops the oldest turns; /clear starts again";
  }
  style_.note(text);
}

void Talk::tell_resumed(const ChatFile& file) const {
  struct stat status {};
  std::string text = file.path + " goes on: " + counted(file.messages.size(), "message");
  if (stat(file.path.c_str(), &status) == 0) text += ", saved " + format_time(status.st_mtime);
  const auto n = static_cast<uint64_t>(moe_session_position(session_.get()));
  style_.note(text + ", " + (n == 0 ? "to be read again" : counted(n, "token")));
}

// Restores a stored conversation: its messages and session.
void Talk::restore(const ChatFile& file) {
  moe_error error;
  if (system_.empty() && !file.system.empty()) {
    check(moe_chat_set_system(chat_, file.system.c_str(), &error), error);
    system_ = file.system;
  }
  for (const auto& [role, content, members] : file.messages) {
    if (members.empty()) {
      add(role.c_str(), content);
    } else {
      const bool none = content.empty() && role == "assistant";
      Json whole = {{"role", role}, {"content", none ? Json(nullptr) : Json(content)}};
      whole.update(members);
      const std::string json = whole.dump(-1, ' ', false, Json::error_handler_t::replace);
      check(moe_chat_add_message(chat_, json.data(), json.size(), &error), error);
    }
    if (editor_ != nullptr && role == "user") editor_->remember(as_typed(content));
  }
  // The same context unless another is requested: LongRoPE's positions depend on it. Without a
  // session nothing needs the size that the file declares.
  if (options_.model.context == 0 && file.context > 0 && file.session_bytes > 0)
    reopen(std::min(file.context, model_context(model_)));
  try {
    load_chat_session(file, session_.get());
  } catch (const CallError& e) {  // before it changed anything
    const bool other_model = std::strstr(e.what(), "another model file") != nullptr;
    if (e.code != MOE_ERR_ARGUMENT || !other_model) throw;
    style_.note(file.path + ": the session is of another model file: the messages are read again");
  }
  tell_resumed(file);
}

// A question whose calls have no results yet is not answered.
void Talk::keep(ReplacedFile& to) {
  if (!calls_.empty()) {
    style_.note("your last message is not saved: calls in its reply have no results");
    drop_turn();
  }
  ChatFile file;
  file.path = options_.file;
  file.system = system_;
  for (size_t i = 0; i < moe_chat_message_count(chat_); ++i) {
    const moe_chat_message m = message(i);
    const Json members = *m.members == '\0' ? Json::object() : Json::parse(m.members);
    file.messages.push_back({m.role, std::string(m.content, m.n_bytes), members});
  }
  write_chat_file(file, session_.get(), to);
}

// After a fatal failure: saves the answered messages.
void Talk::keep_answered(ReplacedFile& to) {
  try {
    const size_t n = moe_chat_message_count(chat_);
    if (n > 0 && role_of(n - 1) != "assistant") drop_turn();
    keep(to);
  } catch (const std::exception& e) {  // report only the first failure
    std::cerr << "moe: " << options_.file << " is not written: " << e.what() << "\n";
  }
}

}  // namespace moe_cli
