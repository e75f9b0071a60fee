// SPDX-License-Identifier: MIT
// Text as a network of bytes that notices where a call begins.
#include "src/grammar/tool_text.h"

#include "src/grammar/token_trie.h"

namespace moe::grammar {
namespace {

/// How much of a mark the end of a text is, by bytes: a state is a number of bytes of it.
class MarkSearch {
 public:
  explicit MarkSearch(std::string_view mark) : mark_(mark) {}
  size_t n_states() const { return mark_.size(); }
  /// The state after one more byte; n_states(): the mark is complete.
  size_t next(size_t state, uint8_t byte) const {
    for (size_t n = state + 1; n > 0; --n) {
      if (static_cast<uint8_t>(mark_[n - 1]) != byte) continue;
      if (slice(mark_, state - (n - 1), n - 1) == slice(mark_, 0, n - 1)) return n;
    }
    return 0;
  }
  size_t next(size_t state, std::string_view text) const {
    for (const char c : text) {
      if (state < n_states()) state = next(state, static_cast<uint8_t>(c));
    }
    return state;
  }

 private:
  std::string_view mark_;
};

/// The edges of a node, a byte at a time.
class Edges {
 public:
  explicit Edges(const Allocator& a) : edges_(a) {}
  Status add(uint8_t byte, uint32_t next) {
    if (!edges_.empty() && edges_.back().next == next && edges_.back().high + 1 == byte) {
      edges_.back().high = byte;
      return {};
    }
    return edges_.push({byte, byte, next});
  }
  std::span<const Edge> span() const { return edges_.span(); }

 private:
  Array<Edge> edges_;
};

bool is_space(uint8_t b) { return b == ' ' || (b >= '\t' && b <= '\n') || b == '\r'; }

// The names that an object has first if it is a call (ToolCallParser).
constexpr std::string_view kCallKeys[] = {"\"name\"", "\"type\"", "\"parameters\"", "\"arguments\"",
                                          "\"id\""};

/// The text before an object that may be a call without a mark.
class BareText {
 public:
  // States: white space, behind a semicolon, behind a brace, then bytes of the keys.
  enum State : size_t { kSpace, kBehindSemicolon, kBehindBrace, kInKey };
  static constexpr size_t kOut = ~size_t{0};  // it is no call
  static constexpr size_t kCall = kOut - 1;   // it is one
  static constexpr size_t kMostKey = 16;
  static constexpr size_t kStates = kInKey + std::size(kCallKeys) * kMostKey;

  // A key's byte is told by the first of the keys that begin like that.
  static size_t next(size_t state, uint8_t b) {
    if (state < kInKey) {
      if (is_space(b)) return state;
      if (state == kSpace && b == ';') return kBehindSemicolon;
      if (state != kBehindBrace) return b == '{' ? size_t{kBehindBrace} : kOut;
      return b == '"' ? key_state(slice(kCallKeys[0], 0, 1)) : kOut;
    }
    const size_t key = (state - kInKey) / kMostKey;
    const size_t n = (state - kInKey) % kMostKey;
    if (n >= kCallKeys[key].size()) return kOut;  // no text leads to such a state
    char text[kMostKey + 1];
    std::copy_n(kCallKeys[key].data(), n, text);
    text[n] = static_cast<char>(b);
    return key_state({text, n + 1});
  }

 private:
  static size_t key_state(std::string_view begun) {
    for (size_t k = 0; k < std::size(kCallKeys); ++k) {
      if (kCallKeys[k] == begun) return kCall;
      if (kCallKeys[k].starts_with(begun)) return kInKey + k * kMostKey + begun.size();
    }
    return kOut;
  }
};

uint32_t any_digits(Network& network, uint32_t next, uint32_t* chain) {
  for (int i = kTokenDigits; i-- > 0;) {
    next = network.byte(kTokenDigit, 0xFF, next);
    chain[i] = next;
  }
  return next;
}

// The node that reads the digits from `i` on; the tokens of `ways` have the same ones before.
uint32_t read_digits(Network& network, std::span<const TokenWay> ways, const uint32_t* chain,
                     int i) {
  if (ways.empty()) return chain[i];
  if (i == kTokenDigits) return ways[0].next;
  Edges edges(network.allocator());
  for (uint32_t digit = 0; digit < 8; ++digit) {
    size_t n = 0;
    while (n < ways.size() && token_digit(ways[n].token, i) == digit) ++n;
    const uint32_t next = read_digits(network, ways.first(n), chain, i + 1);
    ways = ways.subspan(n);
    if (next != kNever) network.fail(edges.add(static_cast<uint8_t>(kTokenDigit + digit), next));
  }
  return network.bytes(edges.span());
}

}  // namespace

int32_t special_token(const Tokenizer& tokenizer, std::string_view piece) {
  const int32_t id = piece.empty() ? -1 : tokenizer.token_id(piece);
  return id >= 0 && tokenizer.is_special(id) ? id : -1;
}

uint32_t read_any_token(Network& network, std::span<const TokenWay> ways, uint32_t others) {
  uint32_t chain[kTokenDigits + 1];
  chain[kTokenDigits] = others;
  any_digits(network, others, chain);
  return network.byte(kTokenByte, kTokenByte, read_digits(network, ways, chain, 0));
}

// The states are those of the mark's search, and those of BareText before them if a call may begin
// without a mark.
Status build_text(const ToolFormat& format, const Tokenizer& tokenizer, Network& network,
                  uint32_t begin, uint32_t open, uint32_t bare) {
  const Allocator& allocator = network.allocator();
  const MarkSearch search(format.marks[ToolFormat::kOpen]);
  const size_t n_bare = format.bare ? BareText::kStates : 0;
  Array<uint32_t> nodes(allocator);
  for (size_t i = 0; i < n_bare + search.n_states(); ++i) {
    MOE_TRY(nodes.push(i == 0 ? begin : network.open_split()));
  }
  const auto searched = [&](size_t state) {
    return state == search.n_states() ? open : nodes[n_bare + state];
  };
  const auto step = [&](size_t i, uint8_t b) {
    if (i >= n_bare) return searched(search.next(i - n_bare, b));
    const size_t to = BareText::next(i, b);
    if (to == BareText::kCall) return kNever;  // that is for `bare`
    return to == BareText::kOut ? searched(search.next(0, b)) : nodes[to];
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    Edges edges(allocator);
    for (uint32_t b = 0; b < kTokenByte; ++b) {
      const auto byte = static_cast<uint8_t>(b);
      const uint32_t next = step(i, byte);
      if (next != kNever) MOE_TRY(edges.add(byte, next));
    }
    // The reader spells out the format's marks, and gets nothing of other special tokens.
    Array<TokenWay> ways(allocator);
    for (const std::string_view mark : format.marks) {
      const int32_t id = special_token(tokenizer, mark);
      const auto is_id = [&](const TokenWay& w) { return w.token == id; };
      if (id < 0 || std::any_of(ways.begin(), ways.end(), is_id)) continue;
      const size_t from = i < n_bare ? 0 : i - n_bare;
      MOE_TRY(ways.push({id, searched(search.next(from, mark))}));
    }
    std::sort(ways.begin(), ways.end(),
              [](const TokenWay& a, const TokenWay& b) { return a.token < b.token; });
    const uint32_t targets[] = {kEnd, network.bytes(edges.span()),
                                read_any_token(network, ways.span(), nodes[i]),
                                i == 0 && format.bare ? bare : kNever};
    network.close_split(nodes[i], targets);
  }
  return network.status();
}

// States: those of a header, by how much of "to=functions." has been read, and a message. The
// reader joins the text around other special tokens.
Status build_channels(const Tokenizer& tokenizer, Network& network, uint32_t begin, uint32_t call) {
  const Allocator& allocator = network.allocator();
  const MarkSearch search("to=functions.");
  Array<uint32_t> nodes(allocator);
  for (size_t i = 0; i < search.n_states(); ++i) {
    MOE_TRY(nodes.push(i == 0 ? begin : network.open_split()));
  }
  const uint32_t text = network.open_split();
  Array<TokenWay> ways(allocator);
  for (const std::string_view header : {"<|channel|>", "<|start|>", "<|end|>"}) {
    const int32_t id = special_token(tokenizer, header);
    if (id >= 0) MOE_TRY(ways.push({id, begin}));
  }
  const int32_t message = special_token(tokenizer, "<|message|>");
  if (message >= 0) MOE_TRY(ways.push({message, text}));
  std::sort(ways.begin(), ways.end(),
            [](const TokenWay& a, const TokenWay& b) { return a.token < b.token; });
  for (size_t i = 0; i < nodes.size(); ++i) {
    Edges edges(allocator);
    for (uint32_t b = 0; b < kTokenByte; ++b) {
      const size_t to = search.next(i, static_cast<uint8_t>(b));
      MOE_TRY(edges.add(static_cast<uint8_t>(b), to == search.n_states() ? call : nodes[to]));
    }
    const uint32_t targets[] = {kEnd, network.bytes(edges.span()),
                                read_any_token(network, ways.span(), nodes[i])};
    network.close_split(nodes[i], targets);
  }
  const uint32_t targets[] = {kEnd, network.byte(0, kTokenByte - 1, text),
                              read_any_token(network, ways.span(), text)};
  network.close_split(text, targets);
  return network.status();
}

}  // namespace moe::grammar
