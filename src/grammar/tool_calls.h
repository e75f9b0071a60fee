// SPDX-License-Identifier: MIT
#pragma once
// Replies that call tools, as a grammar: calls in a format, of tools with schemas.

#include "src/grammar/network.h"
#include "src/text/chat/tools/format.h"
#include "src/text/tokenizer.h"

namespace moe::grammar {

/// The calls that a reply may make.
struct CallChoice {
  bool required = false;       // at least one, and nothing else
  bool one = false;            // with `required`: not more
  std::string_view only = {};  // with `required`: of this tool; empty: of any
};

/// Replies in which every call is whole, names one of the tools and has arguments that satisfy its
/// schema. Without `required` text may stand before, between and behind calls, and need not have
/// any. tools: a list that check_tools() accepts; the arguments of a tool that is not "strict" are
/// any object without `required`, and with it if its "strict" is false. Errors name the place.
Status compile_calls(const ToolFormat& format, std::string_view tools, const CallChoice& choice,
                     const Tokenizer& tokenizer, Network& network, uint32_t* root);

}  // namespace moe::grammar
