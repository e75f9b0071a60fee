// SPDX-License-Identifier: MIT
// Sorts the texts of a vocabulary's tokens into two tries.
#include "src/grammar/token_trie.h"

#include "src/text/characters/utf8.h"
#include "src/text/parts.h"

namespace moe::grammar {
namespace {

constexpr size_t kMaxTokenBytes = 1024;  // longer tokens are never allowed

// The number of characters of an easy text; 0 for another one.
uint32_t easy_length(std::string_view text) {
  uint32_t n = 0;
  for (size_t i = 0; i < text.size(); ++n) {
    const auto b = static_cast<uint8_t>(text[i]);
    if (b < 0x20 || b == 0x7F || b == '"' || b == '\\') return 0;
    const Utf8Char c = utf8_read(text.data() + i, text.size() - i);
    if (c.kind != Utf8Char::kValid) return 0;
    i += c.length;
  }
  return n <= TokenTrie::kLengths ? n : 0;
}

Status spell_token(int32_t token, String& to) {
  char bytes[1 + kTokenDigits] = {static_cast<char>(kTokenByte)};
  for (int i = 0; i < kTokenDigits; ++i) {
    bytes[1 + i] = static_cast<char>(kTokenDigit + token_digit(token, i));
  }
  return to.append({bytes, sizeof bytes});
}

Status check_decoder(const Tokenizer& tokenizer) {
  const TokenDecoder& decoder = tokenizer.parts().decoder;
  bool joins = decoder.empty();
  for (const DecoderStep& step : decoder.steps()) {
    joins = joins || step.kind == DecoderStep::kWordPiece;
  }
  if (!joins) return {};
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "grammar: the tokenizer puts spaces between tokens, so that a token's text "
                       "depends on the one before it");
}

}  // namespace

uint32_t read_token(Network& network, int32_t token, uint32_t next) {
  for (int i = kTokenDigits; i-- > 0;) {
    const auto byte = static_cast<uint8_t>(kTokenDigit + token_digit(token, i));
    next = network.byte(byte, byte, next);
  }
  return network.byte(kTokenByte, kTokenByte, next);
}

TokenTrie::TokenTrie(const Allocator& a)
    : easy_(a), others_(a), next_same_(a), texts_(a), begins_(a), up_to_(a) {}

Status TokenTrie::add_text(std::string_view text) {
  MOE_TRY(begins_.push(static_cast<uint32_t>(texts_.size())));
  if (text.size() == 1) writable_[static_cast<uint8_t>(text[0])] = true;
  return text.size() > kMaxTokenBytes ? Status() : texts_.append(text.data(), text.size());
}

Status TokenTrie::create(const Tokenizer& tokenizer) {
  MOE_TRY(check_decoder(tokenizer));
  String text(texts_.allocator());
  for (int32_t i = 0; i < tokenizer.n_vocab(); ++i) {
    text.clear();
    if (tokenizer.is_special(i)) {
      MOE_TRY(spell_token(i, text));
    } else {
      MOE_TRY(tokenizer.token_bytes(i, text));
      const auto no_text = [](char c) { return static_cast<uint8_t>(c) >= kTokenByte; };
      const std::string_view bytes = text.view();
      if (std::any_of(bytes.begin(), bytes.end(), no_text)) text.clear();
    }
    MOE_TRY(add_text(text.view()));
  }
  return sort_tokens();
}

Status TokenTrie::create(std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) MOE_TRY(add_text(text));
  return sort_tokens();
}

Status TokenTrie::sort_tokens() {
  const Allocator& allocator = texts_.allocator();
  n_tokens_ = static_cast<uint32_t>(begins_.size());
  std::fill(std::begin(writable_) + kTokenByte, std::end(writable_), true);
  MOE_TRY(begins_.push(static_cast<uint32_t>(texts_.size())));
  MOE_TRY(next_same_.resize(n_tokens_));
  for (uint32_t i = 0; i < kLengths; ++i) {
    MOE_TRY(up_to_.push(TokenSet(allocator)));
    MOE_TRY(up_to_.back().resize(n_tokens_));
  }
  Array<int32_t> easy(allocator);
  Array<int32_t> others(allocator);
  for (uint32_t i = 0; i < n_tokens_; ++i) {
    next_same_[i] = -1;
    const std::string_view t = text(static_cast<int32_t>(i));
    if (t.empty()) continue;
    const uint32_t length = easy_length(t);
    MOE_TRY((length != 0 ? easy : others).push(static_cast<int32_t>(i)));
    for (uint32_t n = std::max(length, 1U); length != 0 && n <= kLengths; ++n) up_to_[n - 1].add(i);
  }
  const auto before = [&](int32_t a, int32_t b) {
    const std::string_view x = text(a);
    const std::string_view y = text(b);
    return x != y ? x < y : a < b;
  };
  std::sort(easy.begin(), easy.end(), before);
  std::sort(others.begin(), others.end(), before);
  MOE_TRY(build(easy.span(), easy_));
  return build(others.span(), others_);
}

Status TokenTrie::build(std::span<const int32_t> sorted, Array<Node>& to) {
  Array<uint32_t> path(texts_.allocator());  // the nodes of the last token
  std::string_view last;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string_view t = text(sorted[i]);
    if (i > 0 && t == last) {
      int32_t end = sorted[i - 1];
      next_same_[static_cast<size_t>(end)] = sorted[i];
      continue;
    }
    size_t same = 0;
    while (same < last.size() && same < t.size() && last[same] == t[same]) ++same;
    for (; path.size() > same; path.pop()) {
      to[path.back()].skip = static_cast<uint32_t>(to.size()) - path.back();
    }
    for (size_t j = same; j < t.size(); ++j) {
      MOE_TRY(path.push(static_cast<uint32_t>(to.size())));
      MOE_TRY(to.push({.skip = 0,
                       .token = -1,
                       .depth = static_cast<uint16_t>(j),
                       .byte = static_cast<uint8_t>(t[j])}));
    }
    to[path.back()].token = sorted[i];
    max_depth_ = std::max(max_depth_, static_cast<uint32_t>(t.size()));
    last = t;
  }
  for (; !path.empty(); path.pop()) {
    to[path.back()].skip = static_cast<uint32_t>(to.size()) - path.back();
  }
  return {};
}

int32_t TokenTrie::longest(std::string_view bytes) const {
  int32_t best = -1;
  for (const std::span<const Node> nodes : {easy(), others()}) {
    size_t depth = 0;
    for (size_t i = 0; i < nodes.size() && nodes[i].depth == depth && depth < bytes.size();) {
      if (nodes[i].byte != static_cast<uint8_t>(bytes[depth])) {
        i += nodes[i].skip;
        continue;
      }
      const int32_t token = nodes[i].token;
      if (token >= 0 && (best < 0 || text(token).size() > text(best).size())) best = token;
      ++depth;
      ++i;
    }
  }
  return best;
}

}  // namespace moe::grammar
