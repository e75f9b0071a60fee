// SPDX-License-Identifier: MIT
// Sets of characters as edges over bytes: UTF-8, and the escapes of JSON.
#include "src/grammar/char_set.h"

#include "src/text/characters/utf8.h"

namespace moe::grammar {

Status CharSet::close() {
  if (ranges_.size() == 1 && (ranges_[0].high < 0xD800 || ranges_[0].low > 0xDFFF)) return {};
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CharRange& a, const CharRange& b) { return a.low < b.low; });
  Array<CharRange> joined(ranges_.allocator());
  const auto put = [&](uint32_t low, uint32_t high) -> Status {
    if (low > high) return {};
    if (!joined.empty() && low <= joined.back().high + 1) {
      joined.back().high = std::max(joined.back().high, high);
      return {};
    }
    return joined.push({low, high});
  };
  for (const CharRange& r : ranges_) {
    MOE_TRY(put(r.low, std::min(r.high, 0xD7FFU)));
    MOE_TRY(put(std::max(r.low, 0xE000U), std::min(r.high, kMaxChar)));
  }
  ranges_ = std::move(joined);
  return {};
}

Status CharSet::invert() {
  Array<CharRange> closed = std::move(ranges_);
  ranges_ = Array<CharRange>(closed.allocator());
  uint32_t from = 0;
  for (const CharRange& r : closed) {
    if (r.low > from) MOE_TRY(add(from, r.low - 1));
    from = r.high + 1;
  }
  if (from <= kMaxChar) MOE_TRY(add(from, kMaxChar));
  return close();
}

bool CharSet::contains(uint32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const CharRange& r) { return c >= r.low && c <= r.high; });
}

namespace {

constexpr std::string_view kHex[2] = {"0123456789abcdef", "0123456789ABCDEF"};

/// Collects the edges of one node.
class Choice {
 public:
  explicit Choice(Network& network, const Allocator& a) : network_(network), edges_(a) {}

  void add(uint32_t low, uint32_t high, uint32_t next) {
    const Edge e = {static_cast<uint8_t>(low), static_cast<uint8_t>(high), next};
    if (!edges_.empty() && edges_.back().next == next && edges_.back().high + 1 == e.low) {
      edges_.back().high = e.high;
      return;
    }
    network_.fail(edges_.push(e));
  }
  bool empty() const { return edges_.empty(); }
  uint32_t node() { return edges_.empty() ? kNever : network_.bytes(edges_.span()); }

 private:
  Network& network_;
  Array<Edge> edges_;
};

// A number written with digits of `bits` bits each, the lead added to the first one: a range of
// numbers becomes at most three edges, those of whose ends are followed by fewer digits.
struct Digits {
  Network& network;
  const Allocator& allocator;
  uint32_t bits;
  void (*add)(Choice& to, uint32_t low, uint32_t high, uint32_t next);

  uint32_t read(uint32_t low, uint32_t high, uint32_t n, uint32_t next) const {
    if (n == 0) return next;
    Choice choice(network, allocator);
    const uint32_t shift = bits * (n - 1);
    const uint32_t mask = (1U << shift) - 1;
    uint32_t first = low >> shift;
    uint32_t last = high >> shift;
    if (first == last) {
      add(choice, first, last, read(low & mask, high & mask, n - 1, next));
      return choice.node();
    }
    if ((low & mask) != 0) {
      add(choice, first, first, read(low & mask, mask, n - 1, next));
      ++first;
    }
    const bool cut = (high & mask) != mask;
    if (cut) --last;
    if (first <= last) add(choice, first, last, read(0, mask, n - 1, next));
    if (cut) add(choice, last + 1, last + 1, read(0, high & mask, n - 1, next));
    return choice.node();
  }
};

void add_continuation(Choice& to, uint32_t low, uint32_t high, uint32_t next) {
  to.add(0x80 + low, 0x80 + high, next);
}

void add_hex(Choice& to, uint32_t low, uint32_t high, uint32_t next) {
  for (uint32_t d = low; d <= high; ++d) {
    for (const std::string_view digits : kHex) {
      const auto c = static_cast<uint8_t>(digits[d]);
      to.add(c, c, next);
      if (d < 10) break;
    }
  }
}

// Whether a string of JSON has the character of ASCII as it is, and in no other way.
bool is_itself(uint32_t c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '/'; }

/// Reads characters of one set.
class Reader {
 public:
  Reader(Network& network, const Allocator& a, uint32_t next)
      : utf8_{network, a, 6, add_continuation},
        hex_{network, a, 4, add_hex},
        network_(network),
        choice_(network, a),
        escapes_(network, a),
        codes_(a),
        next_(next) {}

  void plain(const CharRange& r) {
    struct Length {
      uint32_t low, high, n, lead;
    };
    static constexpr Length kLengths[] = {{0, 0x7F, 0, 0},
                                          {0x80, 0x7FF, 1, 0xC0},
                                          {0x800, 0xFFFF, 2, 0xE0},
                                          {0x10000, kMaxChar, 3, 0xF0}};
    for (const Length& l : kLengths) {
      const uint32_t low = std::max(r.low, l.low);
      const uint32_t high = std::min(r.high, l.high);
      if (low <= high) lead(low, high, l.n, l.lead);
    }
  }

  void json(const CharRange& r) {
    const uint32_t end = std::min(r.high, 0x7FU);
    for (uint32_t c = r.low; c <= end; ++c) {
      const uint32_t first = c;
      while (is_itself(c) && c < end && is_itself(c + 1)) ++c;
      if (is_itself(c)) {
        choice_.add(first, c, next_);
      } else {
        ascii(c);
      }
    }
    const CharRange above = {std::max(r.low, 0x80U), r.high};
    if (above.low > above.high) return;
    plain(above);
    code({above.low, std::min(above.high, 0xFFFFU)});
    pairs({std::max(above.low, 0x10000U), above.high});
  }

  uint32_t node() {
    if (!codes_.empty()) escapes_.add('u', 'u', network_.split(codes_.span()));
    if (!escapes_.empty()) choice_.add('\\', '\\', escapes_.node());
    return choice_.node();
  }

 private:
  void lead(uint32_t low, uint32_t high, uint32_t n, uint32_t first_byte) {
    const uint32_t shift = 6 * n;
    const uint32_t mask = (1U << shift) - 1;
    while (low <= high) {
      // As many leads as have the same continuation.
      uint32_t last = low | mask;
      if ((low & mask) == 0 && high >= mask) last = std::max(last, ((high + 1) & ~mask) - 1);
      last = std::min(last, high);
      choice_.add(first_byte + (low >> shift), first_byte + (last >> shift),
                  utf8_.read(low & mask, last & mask, n, next_));
      low = last + 1;
    }
  }

  void ascii(uint32_t c) {
    constexpr std::string_view kShort[] = {"\bb", "\ff", "\nn", "\rr", "\tt", "\"\"", "\\\\", "//"};
    for (const std::string_view s : kShort) {
      if (static_cast<uint32_t>(s[0]) != c) continue;
      const auto e = static_cast<uint8_t>(s[1]);
      escapes_.add(e, e, next_);
    }
    if (c < 0x20 || c == 0x7F) code({c, c});
    if (c >= 0x20 && c != '"' && c != '\\') choice_.add(c, c, next_);
  }

  void code(const CharRange& r) {
    if (r.low <= r.high) network_.fail(codes_.push(hex_.read(r.low, r.high, 4, next_)));
  }

  // Two codes of ten bits each.
  void pairs(const CharRange& r) {
    if (r.low > r.high) return;
    uint32_t low = r.low - 0x10000;
    const uint32_t high = r.high - 0x10000;
    while (low <= high) {
      uint32_t last = low | 0x3FF;
      if ((low & 0x3FF) == 0 && high >= 0x3FF) last = std::max(last, ((high + 1) & ~0x3FFU) - 1);
      last = std::min(last, high);
      const uint32_t second = hex_.read(0xDC00 + (low & 0x3FF), 0xDC00 + (last & 0x3FF), 4, next_);
      network_.fail(codes_.push(hex_.read(0xD800 + (low >> 10), 0xD800 + (last >> 10), 4,
                                          network_.literal("\\u", second))));
      low = last + 1;
    }
  }

  Digits utf8_;
  Digits hex_;
  Network& network_;
  Choice choice_;
  Choice escapes_;         // what follows a backslash
  Array<uint32_t> codes_;  // what follows \u
  uint32_t next_;
};

}  // namespace

uint32_t read_char(Network& network, std::span<const CharRange> set, Spelling spelling,
                   uint32_t next) {
  Reader reader(network, network.allocator(), next);
  for (const CharRange& r : set) {
    if (spelling == Spelling::kPlain) {
      reader.plain(r);
    } else {
      reader.json(r);
    }
  }
  return reader.node();
}

uint32_t read_text(Network& network, std::string_view text, Spelling spelling, uint32_t next) {
  if (spelling == Spelling::kPlain) return network.literal(text, next);
  for (size_t end = text.size(); end > 0;) {
    const uint32_t n = utf8_previous_length(text.data() + end);
    end -= n;
    const uint32_t c = utf8_next(text.data() + end).code;
    const auto byte = static_cast<uint8_t>(c);
    next = is_itself(c) ? network.byte(byte, byte, next) : read_char(network, c, spelling, next);
  }
  return next;
}

}  // namespace moe::grammar
