// SPDX-License-Identifier: MIT
// Numbers within bounds, digit by digit.
#include "src/base/number.h"
#include "src/grammar/schema_compiler.h"

namespace moe::grammar {
namespace {

constexpr int32_t kMaxDigits = 60;       // of a bound
constexpr uint32_t kMaxMultiple = 5000;  // of multipleOf
constexpr size_t kExactDigits = 15;      // a double holds any number of so many digits
constexpr size_t kFewDigits = 6;         // behind the point, of numbers that are no integers

/// A number in decimal: its digits, of which n_whole stand before the point.
struct Decimal {
  bool negative = false;
  char digits[kMaxDigits];
  int32_t n = 0;
  int32_t n_whole = 0;  // at least 1
  bool zero() const { return n == 1 && digits[0] == '0'; }
};

/// A bound, and whether a number may be equal to it.
struct Bound {
  Decimal value;
  bool given = false;
  bool open = false;
};

/// How a number lies to a bound.
enum Order : uint32_t { kLess = 1, kEqual = 2, kMore = 4 };

// The classes of characters: others, the point, "/", digits, others.
constexpr uint32_t kCuts[] = {0, '.', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ':'};
constexpr size_t kPoint = 1;
constexpr size_t kZero = 3;

bool parse_decimal(std::string_view text, Decimal* out) {
  Decimal d;
  d.negative = text.starts_with("-"sv);
  if (d.negative) text.remove_prefix(1);
  int32_t exponent = 0;
  bool minus = false;
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  for (const char c : slice(text, e + 1)) {
    if (c == '-') minus = true;
    if (is_digit(c)) exponent = std::min(exponent * 10 + (c - '0'), 10000);
  }
  // Digits without zeros at either end; `place` is that of the point among them.
  int32_t place = 0;
  bool behind_point = false;
  int32_t n_zeros = 0;  // read, and not written yet
  for (const char c : slice(text, 0, e)) {
    if (c == '.') {
      behind_point = true;
      continue;
    }
    if (!behind_point && (d.n > 0 || c != '0')) ++place;
    if (behind_point && d.n == 0 && c == '0') --place;
    if (c == '0') {
      n_zeros += d.n > 0 ? 1 : 0;
      continue;
    }
    if (d.n + n_zeros >= kMaxDigits) return false;
    for (; n_zeros > 0; --n_zeros) d.digits[d.n++] = '0';
    d.digits[d.n++] = c;
  }
  place += minus ? -exponent : exponent;
  if (d.n == 0) {
    d.negative = false;
    place = 0;
  }
  const int32_t n_before = place <= 0 ? 1 - place : 0;  // zeros to write
  const int32_t n = std::max(d.n + n_before, place);
  if (n > kMaxDigits || n_before > kMaxDigits) return false;
  std::memmove(d.digits + n_before, d.digits, static_cast<size_t>(d.n));
  std::fill(d.digits, d.digits + n_before, '0');
  std::fill(d.digits + n_before + d.n, d.digits + n, '0');
  d.n = std::max(n, 1);
  d.n_whole = std::max(place, 1);
  if (n == 0) d.digits[0] = '0';
  *out = d;
  return true;
}

uint32_t compare_size(const Decimal& a, const Decimal& b) {
  if (a.n_whole != b.n_whole) return a.n_whole < b.n_whole ? kLess : kMore;
  for (int32_t i = 0; i < std::max(a.n, b.n); ++i) {
    const char x = i < a.n ? a.digits[i] : '0';
    const char y = i < b.n ? b.digits[i] : '0';
    if (x != y) return x < y ? kLess : kMore;
  }
  return kEqual;
}

uint32_t compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? kLess : kMore;
  return a.negative ? compare_size(b, a) : compare_size(a, b);
}

// The texts of numbers without a sign, of one or more digits and perhaps a fraction, that lie to
// the bound in one of the ways. Leading zeros do not matter here: number_texts() has none.
Status order_texts(const Decimal& bound, uint32_t ways, Automaton& out) {
  MOE_TRY(out.set_cuts(kCuts));
  const auto state = [&](uint32_t order, uint32_t* id) {
    return out.add_state((order & ways) != 0, id);
  };
  const auto k = static_cast<uint32_t>(bound.n_whole);
  uint32_t start = 0;
  uint32_t less = 0;  // decided, in the fraction
  uint32_t more = 0;
  MOE_TRY(out.add_state(false, &start));
  MOE_TRY(state(kLess, &less));
  MOE_TRY(state(kMore, &more));
  for (size_t d = 0; d < 10; ++d) {
    out.set_next(less, kZero + d, less);
    out.set_next(more, kZero + d, more);
  }
  uint32_t longer = 0;  // more digits than the bound
  MOE_TRY(state(kMore, &longer));
  for (size_t d = 0; d < 10; ++d) out.set_next(longer, kZero + d, longer);
  out.set_next(longer, kPoint, more);
  // After i digits: smaller, equal or larger so far.
  uint32_t last[3] = {start, start, start};
  for (uint32_t i = 1; i <= k; ++i) {
    uint32_t now[3];
    for (uint32_t o = 0; o < 3; ++o) {
      const bool equal = o == 1 && (i < k || bound.n == bound.n_whole);
      const uint32_t order = i < k    ? uint32_t{kLess}
                             : o == 0 ? uint32_t{kLess}
                             : o == 2 ? uint32_t{kMore}
                             : equal  ? uint32_t{kEqual}
                                      : uint32_t{kLess};
      MOE_TRY(state(order, &now[o]));
      if (i < k) out.set_next(now[o], kPoint, less);
    }
    for (size_t d = 0; d < 10; ++d) {
      const auto digit = static_cast<size_t>(bound.digits[i - 1] - '0');
      const uint32_t o = d < digit ? 0 : d == digit ? 1 : 2;
      out.set_next(last[1], kZero + d, now[o]);
      if (i == 1) continue;
      out.set_next(last[0], kZero + d, now[0]);
      out.set_next(last[2], kZero + d, now[2]);
    }
    std::copy_n(now, 3, last);
  }
  for (const uint32_t s : last) {
    for (size_t d = 0; d < 10; ++d) out.set_next(s, kZero + d, longer);
  }
  out.set_next(last[0], kPoint, less);
  out.set_next(last[2], kPoint, more);
  // The fraction, equal so far.
  uint32_t from = 0;
  MOE_TRY(state(bound.n == bound.n_whole ? kEqual : kLess, &from));
  out.set_next(last[1], kPoint, from);
  for (int32_t i = bound.n_whole; i < bound.n; ++i) {
    uint32_t equal = 0;
    MOE_TRY(state(i + 1 == bound.n ? kEqual : kLess, &equal));
    for (size_t d = 0; d < 10; ++d) {
      const auto digit = static_cast<size_t>(bound.digits[i] - '0');
      out.set_next(from, kZero + d, d < digit ? less : d == digit ? equal : more);
    }
    from = equal;
  }
  for (size_t d = 0; d < 10; ++d) out.set_next(from, kZero + d, d == 0 ? from : more);
  return out.trim();
}

// Whole numbers without a sign that are multiples of m.
Status multiple_texts(uint32_t m, Automaton& out) {
  MOE_TRY(out.set_cuts(kCuts));
  uint32_t start = 0;
  uint32_t state = 0;
  MOE_TRY(out.add_state(false, &start));
  for (uint32_t r = 0; r < m; ++r) MOE_TRY(out.add_state(r == 0, &state));
  for (uint32_t d = 0; d < 10; ++d) out.set_next(start, kZero + d, 1 + d % m);
  for (uint32_t r = 0; r < m; ++r) {
    for (uint32_t d = 0; d < 10; ++d) out.set_next(1 + r, kZero + d, 1 + (r * 10 + d) % m);
  }
  return out.trim();
}

// Numbers without a sign: whole ones, or with a fraction of up to n digits.
Status number_texts(bool whole, size_t n, Automaton& out) {
  MOE_TRY(out.set_cuts(kCuts));
  uint32_t start = 0;
  uint32_t zero = 0;
  uint32_t digits = 0;
  uint32_t from = 0;
  MOE_TRY(out.add_state(false, &start));
  MOE_TRY(out.add_state(true, &zero));
  MOE_TRY(out.add_state(true, &digits));
  out.set_next(start, kZero, zero);
  for (size_t d = 1; d < 10; ++d) out.set_next(start, kZero + d, digits);
  for (size_t d = 0; d < 10; ++d) out.set_next(digits, kZero + d, digits);
  if (whole || n == 0) return {};
  MOE_TRY(out.add_state(false, &from));
  out.set_next(zero, kPoint, from);
  out.set_next(digits, kPoint, from);
  for (size_t i = 0; i < n; ++i) {
    uint32_t to = 0;
    MOE_TRY(out.add_state(true, &to));
    for (size_t d = 0; d < 10; ++d) out.set_next(from, kZero + d, to);
    from = to;
  }
  return {};
}

// Numbers without a sign that are no integers, and so few digits that a double is none either.
Status fraction_texts(Automaton& out) {
  Expressions e(out.allocator());
  uint32_t expr = 0;
  MOE_TRY(parse_regex("(?:0|[1-9][0-9]{0,8})\\.[0-9]{0,5}[1-9]", e, &expr));  // kFewDigits
  return out.from_expression(e, expr, Match::kWhole);
}

}  // namespace

/// The limits that the schemas of a list set to numbers.
struct SchemaCompiler::Range {
  Bound low;
  Bound high;
  Array<uint32_t> multiples;
  Array<uint32_t> not_multiples;
  Array<Decimal> excluded;
  explicit Range(const Allocator& a) : multiples(a), not_multiples(a), excluded(a) {}
  bool empty() const {
    return !low.given && !high.given && multiples.empty() && not_multiples.empty() &&
           excluded.empty();
  }
};

Status SchemaCompiler::range(const Parts& parts, Range& out) const {
  const auto decimal = [&](uint32_t k, Decimal* d) -> Status {
    if (json_.kind(k) != Json::kNumber) return malformed(k, "expected a number");
    if (!parse_decimal(json_.text(k), d)) return unsupported(k, "more than 60 digits");
    return {};
  };
  const auto bound = [&](std::string_view keyword, std::string_view exclusive) -> Status {
    const bool open = keyword == exclusive;
    for (const Part& p : parts) {
      const bool broken = breaks(p, keyword);
      const uint32_t k = broken ? p.node : get(p, keyword);
      if (k == Json::kNone) continue;
      if (open && json_.is_bool(k)) continue;  // draft 4: belongs to the other keyword
      Bound b;
      b.given = true;
      const uint32_t flag = json_.find(json_.parent(k), exclusive);
      b.open = open || (flag != Json::kNone && json_.kind(flag) == Json::kTrue);
      b.open = b.open != broken;
      MOE_TRY(decimal(k, &b.value));
      const bool low = keyword.ends_with("inimum"sv) != broken;
      Bound& to = low ? out.low : out.high;
      const uint32_t keep = low ? kMore : kLess;
      const uint32_t order = to.given ? compare(b.value, to.value) : keep;
      if (order == keep || (order == kEqual && b.open)) to = b;
    }
    return {};
  };
  MOE_TRY(bound("minimum"sv, "exclusiveMinimum"sv));
  MOE_TRY(bound("exclusiveMinimum"sv, "exclusiveMinimum"sv));
  MOE_TRY(bound("maximum"sv, "exclusiveMaximum"sv));
  MOE_TRY(bound("exclusiveMaximum"sv, "exclusiveMaximum"sv));
  for (const Part& p : parts) {
    const bool list = breaks(p, "enum"sv);
    for (uint32_t c = list                   ? json_.first(p.node)
                      : breaks(p, "const"sv) ? p.node
                                             : Json::kNone;
         c != Json::kNone; c = list ? json_.next(c) : Json::kNone) {
      if (json_.kind(c) != Json::kNumber) continue;
      Decimal d;
      MOE_TRY(spend(100));
      MOE_TRY(decimal(c, &d));
      MOE_TRY(out.excluded.push(d));
    }
    const bool broken = breaks(p, "multipleOf"sv);
    const uint32_t k = broken ? p.node : get(p, "multipleOf"sv);
    if (k == Json::kNone) continue;
    Decimal d;
    if (json_.kind(k) != Json::kNumber) return malformed(k, "expected a number");
    uint32_t m = 0;
    const bool fits = parse_decimal(json_.text(k), &d) && d.n == d.n_whole && !d.negative;
    for (int32_t i = 0; fits && i < d.n; ++i) {
      m = std::min(m * 10 + static_cast<uint32_t>(d.digits[i] - '0'), kMaxMultiple + 1);
    }
    if (m == 0 || m > kMaxMultiple) return unsupported(k, "expected a whole number from 1 to 5000");
    MOE_TRY((broken ? out.not_multiples : out.multiples).push(m));
  }
  return {};
}

Status SchemaCompiler::number(const Parts& parts, uint32_t types, uint32_t next, uint32_t* out) {
  Range r(allocator());
  MOE_TRY(range(parts, r));
  const bool integers = (types & kTypeInteger) != 0;
  // A multiple of a whole number is an integer.
  const bool fractions = (types & kTypeFraction) != 0 && r.multiples.empty();
  if (!integers && !fractions) {
    *out = kNever;
    return {};
  }
  if (r.empty() && integers) {
    *out = network_.call(shared(fractions ? kAnyNumber : kAnyInteger), next);
    return {};
  }
  uint32_t targets[2];
  for (const bool negative : {false, true}) {
    // Sizes of negative numbers are restricted the other way round.
    Bound low = negative ? r.high : r.low;
    Bound high = negative ? r.low : r.high;
    low.value.negative = low.value.negative != negative;
    high.value.negative = high.value.negative != negative;
    const bool none = high.given && high.value.negative && !high.value.zero();
    size_t n_digits = kExactDigits;  // of a fraction
    for (const Bound* b : {&low, &high}) {
      if (!b->given || !b->open) continue;  // rounding leads no number past a bound, but onto it
      const auto n_whole = static_cast<size_t>(b->value.n_whole);
      n_digits = std::min(n_digits, kExactDigits - std::min(kExactDigits, n_whole));
    }
    for (const Bound* b : {&low, &high}) {
      if (b->given)
        n_digits = std::max(n_digits, static_cast<size_t>(b->value.n - b->value.n_whole));
    }
    for (const Decimal& d : r.excluded) {
      const auto n_whole = static_cast<size_t>(d.n_whole);
      n_digits = std::min(n_digits, kExactDigits - std::min(kExactDigits, n_whole));
    }
    Automaton texts(allocator());
    const auto join = [&](const Automaton& with, Automaton::Op op) -> Status {
      Automaton both(allocator());
      MOE_TRY(spend(with.n_cells() + 10 * uint64_t{texts.n_cells()}));
      MOE_TRY(both.combine(texts, with, op));
      texts = std::move(both);
      return {};
    };
    // Numbers that are no integers need a form of their own where 2 and 2.0 are not allowed, or
    // where digits behind the point could be rounded onto a bound.
    const bool apart =
        fractions && (!integers || !r.not_multiples.empty() || n_digits < kFewDigits);
    if (integers) MOE_TRY(number_texts(!fractions || apart, n_digits, texts));
    for (const uint32_t m : r.not_multiples) {
      Automaton with(allocator());
      MOE_TRY(multiple_texts(m, with));
      MOE_TRY(join(with, Automaton::Op::kWithout));
    }
    if (apart) {
      Automaton with(allocator());
      MOE_TRY(fraction_texts(with));
      MOE_TRY(join(with, Automaton::Op::kOr));
    }
    const auto keep = [&](const Decimal& bound, uint32_t ways) -> Status {
      Automaton with(allocator());
      MOE_TRY(order_texts(bound, ways, with));
      return join(with, Automaton::Op::kAnd);
    };
    if (low.given && !low.value.negative) {
      MOE_TRY(keep(low.value, low.open ? uint32_t{kMore} : uint32_t{kMore | kEqual}));
    }
    if (high.given && !none) {
      MOE_TRY(keep(high.value, high.open ? uint32_t{kLess} : uint32_t{kLess | kEqual}));
    }
    if (negative) {  // there is no -0
      Decimal zero;
      zero.digits[0] = '0';
      zero.n = zero.n_whole = 1;
      MOE_TRY(keep(zero, kMore));
    }
    for (const Decimal& d : r.excluded) {
      if (d.zero() ? negative : d.negative != negative) continue;
      MOE_TRY(keep(d, uint32_t{kLess | kMore}));
    }
    for (const uint32_t m : r.multiples) {
      if (m == 1) continue;
      Automaton with(allocator());
      MOE_TRY(multiple_texts(m, with));
      MOE_TRY(join(with, Automaton::Op::kAnd));
    }
    const uint32_t digits = none ? kNever : texts.build(network_, Spelling::kPlain, next);
    targets[negative ? 1 : 0] = negative ? network_.byte('-', '-', digits) : digits;
  }
  *out = network_.split(targets);
  return network_.status();
}

Status SchemaCompiler::number_admits(uint32_t value, const Parts& parts, bool* out) const {
  Range r(allocator());
  MOE_TRY(range(parts, r));
  Decimal d;
  if (!parse_decimal(json_.text(value), &d)) return unsupported(value, "more than 60 digits");
  const auto within = [&](const Bound& b, uint32_t way) {
    const uint32_t order = b.given ? compare(d, b.value) : way;
    return order == way || (order == kEqual && !b.open);
  };
  *out = within(r.low, kMore) && within(r.high, kLess);
  const auto divides = [&](uint32_t m) {
    uint32_t rest = 0;
    for (int32_t i = 0; i < d.n_whole; ++i) {
      rest = (rest * 10 + static_cast<uint32_t>(d.digits[i] - '0')) % m;
    }
    return rest == 0 && d.n == d.n_whole;
  };
  for (const uint32_t m : r.multiples) *out = *out && divides(m);
  for (const uint32_t m : r.not_multiples) *out = *out && !divides(m);
  for (const Decimal& other : r.excluded) *out = *out && compare(d, other) != kEqual;
  return {};
}

bool SchemaCompiler::is_integer(uint32_t value) const {
  Decimal d;
  return json_.kind(value) == Json::kNumber && parse_decimal(json_.text(value), &d) &&
         d.n == d.n_whole;
}

bool SchemaCompiler::same_number(uint32_t a, uint32_t b) const {
  Decimal x;
  Decimal y;
  const bool read = parse_decimal(json_.text(a), &x) && parse_decimal(json_.text(b), &y);
  return read ? compare(x, y) == kEqual : json_.text(a) == json_.text(b);
}

}  // namespace moe::grammar
