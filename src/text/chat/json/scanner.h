// SPDX-License-Identifier: MIT
#pragma once
// Checks JSON (RFC 8259) byte by byte, so that a value that arrives in parts is read once.

#include <cstdint>
#include <string_view>

namespace moe::json {

/// Nesting of lists and objects that is accepted.
inline constexpr int kMostDepth = 64;

/// Reads one value. Stricter than the grammar where programs differ: a surrogate stands in a pair,
/// and numbers are below 1e308. White space may stand inside and before the value.
class Scanner {
 public:
  enum class Step : uint8_t { kMore, kEnd, kBad };

  /// Takes the next byte. kEnd: it was the last of a string, list, object, true, false or null. A
  /// number has no last byte: finish() ends it. After kEnd and kBad only reset() may be called.
  Step push(char c);
  /// The text ends here: whether it is one whole value.
  bool finish() const;
  void reset() { *this = Scanner(); }

 private:
  enum class State : uint8_t {
    kValue,     // a value must follow
    kFirst,     // a value, or the end of the list
    kFirstKey,  // a key, or the end of the object
    kKey,       // a key must follow
    kColon,     // after a key
    kAfter,     // after a value in a list or object
    kString,    // in a string
    kEscape,    // after a backslash
    kHex,       // in \uXXXX
    kPair,      // the backslash of the second half of a pair must follow
    kPairU,     // its u
    kMinus,     // a number: after the sign
    kZero,      // after a leading 0
    kDigits,    // in the whole part
    kDot,       // after the point
    kFraction,  // after digits behind the point
    kExponent,  // after e
    kSign,      // after the sign of the exponent
    kPower,     // in the exponent
    kWord,      // in true, false or null
    kDone
  };
  Step begin_value(char c);
  Step string_byte(char c);
  Step hex_digit(char c);
  Step number_byte(char c);
  Step after_value(char c);
  Step open(bool object);
  Step close(bool object);
  Step end_value();
  Step go(State state) {
    state_ = state;
    return Step::kMore;
  }
  bool in_object() const { return ((objects_ >> (depth_ - 1)) & 1) != 0; }
  bool number_fits() const;

  State state_ = State::kValue;
  bool is_key_ = false;
  bool minus_ = false;     // the exponent is negative
  bool high_ = false;      // the first half of a pair of surrogates was read
  uint8_t n_hex_ = 0;      // digits read
  uint16_t code_ = 0;      // of these
  uint16_t n_digits_ = 0;  // of the whole part of a number, at most 400
  uint16_t power_ = 0;     // at most 400
  int depth_ = 0;
  uint64_t objects_ = 0;        // a bit for each level: 1 for an object
  const char* word_ = nullptr;  // the rest of true, false or null
};

/// Whether `text` is one value with white space around it, in UTF-8.
bool is_valid(std::string_view text);
bool is_space(char c);
/// Without white space at both ends.
std::string_view trimmed(std::string_view text);

}  // namespace moe::json
