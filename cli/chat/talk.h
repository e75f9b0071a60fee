// SPDX-License-Identifier: MIT
#pragma once
// A conversation at a terminal or from a pipe.

#include <deque>
#include <exception>
#include <memory>
#include <string>

#include "cli/chat/chat_file.h"
#include "cli/chat/chat_style.h"
#include "cli/chat/chat_template.h"
#include "cli/chat/chat_tools.h"
#include "cli/chat/line_editor.h"
#include "cli/model/context.h"
#include "cli/model/routing_stats.h"
#include "cli/model/sampling.h"

namespace moe_cli {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  TemplateOptions chat_template;
  ToolOptions tools;
  std::string first;  // message, of -p
  std::string user_prefix;
  std::string reply_prefix;
  std::string file;    // of --session
  bool shift = false;  // drop the oldest turns when the context is full
  bool render = false;
  bool stats = false;
};

/// The conversation and its terminal.
class Talk {
 public:
  Talk(const ChatOptions& o, moe_model* model);

  void restore(const ChatFile& file);
  void keep(ReplacedFile& to);
  void keep_answered(ReplacedFile& to);
  void run();
  void report_skips() const { report_skipped(options_.model, model_, {session_.get()}); }

 private:
  static bool on_piece(void* user, const moe_piece* piece) {
    auto* talk = static_cast<Talk*>(user);
    try {
      return talk->take(*piece);
    } catch (...) {  // nothing may be thrown through the library
      talk->thrown_ = std::current_exception();
      return false;
    }
  }
  bool take(const moe_piece& piece);
  void show_thinking(bool on);
  void tell_sampling() const;
  bool command(const std::string& line);
  bool take_command(const std::string& word, const std::string& rest);
  void refuse_command(const std::string& line, const std::string& why) const;
  void show_conversation();
  void answer(const std::string& message);
  void turn(const std::string& message);
  void take_result(const std::string& text);
  void reply();
  void show_calls() const;
  void drop_turn();
  std::string prompt() const;
  moe_chat_message message(size_t index) const;
  std::string role_of(size_t index) const { return message(index).role; }
  void make_room();
  void grow(int64_t needed);
  void shift(size_t n_tokens);
  bool has_older_turns() const;
  void reopen(int context);
  void tell_resumed(const ChatFile& file) const;
  void name_context(moe_error* error) const;
  void tell_full() const;
  void report(const moe_chat_result& result);
  void take_back(moe_status status, const moe_error& error);
  void show(bool begin_reply);
  void add(const char* role, const std::string& text) {
    moe_error error;
    check(moe_chat_add(chat_, role, text.data(), text.size(), &error), error);
  }
  void truncate(size_t n) {
    moe_error error;
    check(moe_chat_truncate(chat_, n, &error), error);
  }

  const ChatOptions& options_;
  moe_model* model_;
  Session session_;
  const std::string template_;  // a name or Jinja text; empty: the model's own
  Chat chat_owner_;
  moe_chat* chat_;
  const ModelSampling defaults_;
  Sampling sampling_;
  const Grammar grammar_;  // of each reply; null: any text
  const bool terminal_;
  const ChatStyle style_;
  const std::unique_ptr<LineEditor> editor_;
  std::exception_ptr thrown_;
  bool thinking_ = false;
  std::string answer_;
  std::deque<ToolCall> calls_;  // that wait for their results
  std::string thought_;
  std::string system_;
  bool shifts_;
  bool ended_ = false;
  size_t n_dropped_ = 0;       // messages, before the last reply
  moe_expert_stats before_{};  // the last reply
};

}  // namespace moe_cli
