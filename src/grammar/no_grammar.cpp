// SPDX-License-Identifier: MIT
// The grammar of calls in a build without grammars (MOE_GRAMMAR=OFF), which chats refer to.
#include "src/grammar/grammar.h"

namespace moe::grammar {

// Nobody gets here: no grammar can be made (src/c_api/no_grammar.cpp).
Status Grammar::create_calls(const ToolFormat&, std::string_view, const CallChoice&,
                             const Tokenizer&) {
  return Status::error(MOE_ERR_UNSUPPORTED, "this build has no grammars (MOE_GRAMMAR=OFF)");
}

}  // namespace moe::grammar
