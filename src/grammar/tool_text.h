// SPDX-License-Identifier: MIT
#pragma once
// The text of a reply outside of calls, up to where one begins.

#include "src/grammar/network.h"
#include "src/text/chat/tools/format.h"
#include "src/text/tokenizer.h"

namespace moe::grammar {

/// The id of a special token with this spelling; -1: there is none.
int32_t special_token(const Tokenizer& tokenizer, std::string_view piece);

/// The node behind some special tokens.
struct TokenWay {
  int32_t token;
  uint32_t next;
};
/// A node that reads any special token: those of `ways`, sorted by their ids, lead to nodes of
/// their own (kNever: not allowed).
uint32_t read_any_token(Network& network, std::span<const TokenWay> ways, uint32_t others);

/// Closes the split `begin`: all texts, which may end anywhere, and in which calls begin. open:
/// reads what follows the format's first mark. bare: reads a call that needs no mark, at `begin`.
Status build_text(const ToolFormat& format, const Tokenizer& tokenizer, Network& network,
                  uint32_t begin, uint32_t open, uint32_t bare);
/// The same for replies in channels. call: reads what follows "to=functions." in a header.
Status build_channels(const Tokenizer& tokenizer, Network& network, uint32_t begin, uint32_t call);

}  // namespace moe::grammar
