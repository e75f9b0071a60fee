// SPDX-License-Identifier: MIT
#pragma once
// Values of expressions and their memory. Nothing is freed before the evaluation ends.

#include <bit>
#include <string_view>

#include "src/text/chat/jinja/program.h"

namespace moe::jinja {

enum class Kind : uint8_t {
  kUndefined,  // a, b: its name
  kNone,
  kBool,       // number
  kInt,        // number
  kFloat,      // number: the bits of a double
  kString,     // a: first byte, b: bytes
  kList,       // a: first item, b: items (tuples are lists)
  kDict,       // a: first entry, b: entries, in the order they were written
  kNamespace,  // a: index
  kMacro,      // a: its node, b: the scope it was defined in, number: that scope's serial
  kFunction,   // a: index
  kLoop        // a: index of the active loop
};

struct Value {
  Kind kind = Kind::kUndefined;
  uint32_t a = 0;
  uint32_t b = 0;
  int64_t number = 0;

  bool is(Kind k) const { return kind == k; }
};

inline Value none_value() { return {Kind::kNone, 0, 0, 0}; }
inline Value bool_value(bool b) { return {Kind::kBool, 0, 0, b ? 1 : 0}; }
inline Value int_value(int64_t n) { return {Kind::kInt, 0, 0, n}; }
inline Value float_value(double d) { return {Kind::kFloat, 0, 0, std::bit_cast<int64_t>(d)}; }
inline double float_of(Value v) { return std::bit_cast<double>(v.number); }
/// True for the kinds that are numbers in Python, where a bool is an int.
inline bool is_integer(Value v) { return v.is(Kind::kInt) || v.is(Kind::kBool); }
inline bool is_number(Value v) { return is_integer(v) || v.is(Kind::kFloat); }
inline double to_double(Value v) {
  return v.is(Kind::kFloat) ? float_of(v) : static_cast<double>(v.number);
}
inline Value text_value(Text t) { return {Kind::kString, t.begin, t.size, 0}; }
inline Text text_of(Value v) { return {v.a, v.b}; }

struct Entry {
  Value key;
  Value value;
};

/// Bytes, each marked as from outside the template (1) or from its author (0).
struct MarkedText {
  explicit MarkedText(const Allocator& a) : chars(a), marks(a) {}

  size_t size() const { return chars.size(); }
  Status append(std::string_view text, uint8_t mark) {
    const size_t at = size();
    MOE_TRY(chars.append(text.data(), text.size()));
    MOE_TRY(marks.reserve(chars.capacity()));
    MOE_TRY(marks.resize(chars.size()));
    std::fill(marks.begin() + at, marks.end(), mark);
    return {};
  }
  /// `other` may be this object.
  Status append(const MarkedText& other, size_t begin, size_t n) {
    const size_t at = size();
    if (at + n > chars.capacity()) {
      const size_t room = at + n + at / 2;
      MOE_TRY(chars.reserve(room));
      MOE_TRY(marks.reserve(room));
    }
    MOE_TRY(chars.resize(at + n));
    MOE_TRY(marks.resize(at + n));
    std::copy(other.chars.begin() + begin, other.chars.begin() + begin + n, chars.begin() + at);
    std::copy(other.marks.begin() + begin, other.marks.begin() + begin + n, marks.begin() + at);
    return {};
  }
  void cut(size_t n) {
    (void)chars.resize(n);  // cannot fail when shrinking
    (void)marks.resize(n);
  }
  std::string_view view() const { return {chars.data(), chars.size()}; }

  Array<char> chars;
  Array<uint8_t> marks;
};

struct Heap {
  explicit Heap(const Allocator& a) : text(a), items(a), entries(a) {}

  std::string_view view(Text t) const { return {text.chars.data() + t.begin, t.size}; }
  std::string_view view(Value v) const { return view(text_of(v)); }
  std::span<const Value> list(Value v) const { return {items.data() + v.a, v.b}; }
  std::span<const Entry> dict(Value v) const { return {entries.data() + v.a, v.b}; }

  MarkedText text;
  Array<Value> items;
  Array<Entry> entries;
};

/// White space as in Python's str.strip().
bool is_python_space(uint32_t code);

}  // namespace moe::jinja
