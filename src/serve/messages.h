// SPDX-License-Identifier: MIT
#pragma once
// The messages of a conversation.

#include <vector>

#include "src/serve/host.h"
#include "src/serve/json.h"

namespace moe_serve {

/// The conversation in "messages", with "chat_template_kwargs" and "reasoning_effort", in a chat
/// without a session. Throws Refusal.
Chat conversation(const Host& host, const Json& request);
/// The tokens of a conversation with the beginning of a reply. Throws Refusal.
std::vector<int32_t> conversation_tokens(const moe_chat* chat);

}  // namespace moe_serve
