// SPDX-License-Identifier: MIT
// Opens a chat for each request with messages, generates the reply, and gives it back without
// thinking.
#include "cli/batch/batch_chat.h"

#include <new>

#include "cli/batch/batch_request.h"
#include "cli/chat/chat_tools.h"
#include "cli/model/candidates.h"
#include "cli/model/sampling.h"

namespace moe_cli {
namespace {

constexpr const char* kNoTemplate = "the model has no chat template; --template gives one";

/// The answer of a reply without thinking.
struct Answer {
  std::string text;
  const moe_model* model = nullptr;  // null: no log-probabilities
  Json logprobs = Json::array();     // of thinking, too
  Json calls = Json::array();        // of tools
  bool one_call = false;             // with which the reply ends
  bool out_of_memory = false;

  bool ended() const { return one_call && !calls.empty(); }
  static bool take(void* user, const moe_piece* piece) {
    auto* answer = static_cast<Answer*>(user);
    try {
      if (answer->model != nullptr && piece->token >= 0) {
        answer->logprobs.push_back(
            token_json(answer->model, {piece->token, piece->logprob}, piece->top, piece->n_top));
      }
      if ((piece->flags & MOE_PIECE_THINKING) != 0) return true;
      if ((piece->flags & MOE_PIECE_TOOL_CALL) != 0) {
        if (answer->ended()) return false;
        answer->calls.push_back(ToolCall({piece->text, piece->n_bytes}).json());
        return !answer->ended();
      }
      answer->text.append(piece->text, piece->n_bytes);
    } catch (const std::bad_alloc&) {  // nothing may be thrown through the library
      answer->out_of_memory = true;
    }
    return !answer->out_of_memory;
  }
};

}  // namespace

BatchChat::BatchChat(const TemplateOptions& o, const moe_model* model)
    : options_(o), model_(model), template_(o.name.empty() ? "" : read_template(o.name)) {}

void BatchChat::check_options(moe_session* session) const {
  if (!options_.given()) return;
  if (!has_template()) throw CallError(MOE_ERR_UNSUPPORTED, kNoTemplate);
  (void)open(session, Json::array());  // reports its errors
}

bool BatchChat::has_template() const {
  return !template_.empty() || moe_model_chat_template(model_) != nullptr;
}

// --system is for conversations that do not begin with a system prompt.
Chat BatchChat::open(moe_session* session, const Json& messages) const {
  TemplateOptions options = options_;
  if (begins_with_system(messages)) options.system.clear();
  Chat chat;
  moe_error error;
  check_line(create_chat(options, template_, session, &chat, &error), error);
  return chat;
}

void BatchChat::reply(moe_session* session, const Json& request, moe_generate_params params,
                      bool logprobs, Json& result) const {
  const Json& messages = request["messages"];
  if (!has_template()) throw LineError(std::string("'messages': ") + kNoTemplate);
  const Chat chat = open(session, messages);
  add_tools(chat.get(), request);
  add_messages(chat.get(), messages);
  Answer answer;
  if (logprobs) answer.model = model_;
  answer.one_call = one_call(request);
  params.piece = Answer::take;
  params.piece_user = &answer;
  moe_chat_result r{};
  r.struct_size = sizeof r;
  moe_error error;
  check_line(moe_chat_reply(chat.get(), &params, &r, &error), error);
  if (answer.out_of_memory) throw std::bad_alloc();
  result["text"] = answer.text;
  if (!answer.calls.empty()) result["tool_calls"] = answer.calls;
  result["finish"] = answer.ended() ? "call" : finish_name(r.finish);
  result["n_prompt"] = r.n_prompt;
  result["n_generated"] = r.n_generated;
  if (logprobs) result["logprobs"] = answer.logprobs;
}

}  // namespace moe_cli
