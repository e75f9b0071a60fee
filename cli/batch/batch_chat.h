// SPDX-License-Identifier: MIT
#pragma once
// Conversations of moe batch, which are answered one at a time by the library's chat.

#include <string>

#include "cli/chat/chat_template.h"
#include "cli/common.h"

namespace moe_cli {

class BatchChat {
 public:
  /// `o` must outlive this object. Throws UsageError.
  BatchChat(const TemplateOptions& o, const moe_model* model);
  /// Throws if these options, if any are given, cannot work with the model of the session.
  void check_options(moe_session* session) const;
  /// Adds the reply to a request's messages to `result`: "text" without the thinking, "tool_calls"
  /// if there are any, "finish" ... and, if `logprobs`, the log-probabilities of all its tokens.
  /// Throws LineError.
  void reply(moe_session* session, const Json& request, moe_generate_params params, bool logprobs,
             Json& result) const;

 private:
  bool has_template() const;
  Chat open(moe_session* session, const Json& messages) const;

  const TemplateOptions& options_;
  const moe_model* model_;
  const std::string template_;  // of --template
};

}  // namespace moe_cli
