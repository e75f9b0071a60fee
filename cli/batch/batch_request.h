// SPDX-License-Identifier: MIT
#pragma once
// The lines of moe batch's input.

#include <stdexcept>
#include <string>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

/// An error in one line, which does not stop the others.
struct LineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws LineError, or CallError if no line can be evaluated any more.
void check_line(moe_status status, const moe_error& error);

/// The object in a line, without keys that are null; whole: false if only its beginning was read.
/// A line of OpenAI's batch files gives its "body" with its "custom_id". If `id` is not null, *id
/// becomes id_of() the line, also of one that is refused. Throws LineError.
Json parse_request(const std::string& line, bool whole, Json* id = nullptr);
/// "id" or "custom_id", under its own name, if it can be copied to the result; otherwise empty.
Json id_of(const Json& request);
/// Throws LineError unless the keys are those of a request, with a good id and one of prompt,
/// messages and tokens.
void check_keys(const Json& request);

/// Settings of a line, in place of those of the command line.
struct LineSettings {
  int max_tokens = 0;  // 0: no limit
  moe_sampling sampling{};
};
/// `common` with what the request gives. Throws LineError.
LineSettings settings_of(const Json& request, const LineSettings& common);
/// The tokens of "prompt" or "tokens". Throws LineError.
std::vector<int32_t> tokens_of(const Json& request, const moe_model* model);
/// The texts of "stop", which replace `others`. Throws LineError.
std::vector<std::string> stops_of(const Json& request, const moe_model* model,
                                  const std::vector<std::string>& others);
/// The grammar of "response_format"; null: any text, as if there is none. Throws LineError.
Grammar format_of(const Json& request, moe_model* model);
/// Whether the first of "messages" has the role "system", or "developer", its newer name.
bool begins_with_system(const Json& messages);
/// Adds the messages of "messages" to a chat. Throws LineError.
void add_messages(moe_chat* chat, const Json& messages);
/// Gives a chat the "tools" of a request, if there are any. Throws LineError.
void add_tools(moe_chat* chat, const Json& request);
/// Whether the reply ends with its first call: "parallel_tool_calls" is false.
bool one_call(const Json& request);

/// Whether a result of an earlier run may be that of a line: the ids and the numbers of tokens,
/// which are not counted for conversations, are the same. Both are lines without their end.
bool may_answer(const std::string& result, const std::string& line, bool whole,
                const moe_model* model);

}  // namespace moe_cli
