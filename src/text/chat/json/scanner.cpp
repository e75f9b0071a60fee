// SPDX-License-Identifier: MIT
// A state for each place of the grammar, and a bit for each open list or object.
#include "src/text/chat/json/scanner.h"

#include "src/base/number.h"
#include "src/text/characters/utf8.h"

namespace moe::json {
namespace {

constexpr uint16_t kMostDigits = 400;  // no number so long fits

}  // namespace

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_valid(std::string_view text) {
  text = trimmed(text);
  if (!utf8_is_valid(text)) return false;
  Scanner scanner;
  for (size_t i = 0; i < text.size(); ++i) {
    const Scanner::Step step = scanner.push(text[i]);
    if (step == Scanner::Step::kBad) return false;
    if (step == Scanner::Step::kEnd) return i + 1 == text.size();
  }
  return scanner.finish();
}

Scanner::Step Scanner::push(char c) {
  switch (state_) {
    case State::kString:
    case State::kEscape:
    case State::kHex:
    case State::kPair:
    case State::kPairU:
      return string_byte(c);
    case State::kWord:
      if (c != *word_) return Step::kBad;
      return *++word_ == '\0' ? end_value() : Step::kMore;
    case State::kValue:
    case State::kFirst:
    case State::kFirstKey:
    case State::kKey:
    case State::kColon:
    case State::kAfter:
      break;
    case State::kDone:
      return Step::kBad;
    default:
      return number_byte(c);
  }
  if (is_space(c)) return Step::kMore;
  if (state_ == State::kAfter) return after_value(c);
  if (state_ == State::kColon) return c == ':' ? go(State::kValue) : Step::kBad;
  if (state_ == State::kFirst && c == ']') return close(false);
  if (state_ == State::kFirstKey && c == '}') return close(true);
  if (state_ == State::kValue || state_ == State::kFirst) return begin_value(c);
  is_key_ = true;
  return c == '"' ? go(State::kString) : Step::kBad;
}

Scanner::Step Scanner::begin_value(char c) {
  is_key_ = false;
  n_digits_ = 1;
  power_ = 0;
  minus_ = false;
  switch (c) {
    case '"':
      return go(State::kString);
    case '{':
      return open(true);
    case '[':
      return open(false);
    case '-':
      return go(State::kMinus);
    case '0':
      return go(State::kZero);
    case 't':
      word_ = "rue";
      return go(State::kWord);
    case 'f':
      word_ = "alse";
      return go(State::kWord);
    case 'n':
      word_ = "ull";
      return go(State::kWord);
    default:
      return is_digit(c) ? go(State::kDigits) : Step::kBad;
  }
}

Scanner::Step Scanner::string_byte(char c) {
  switch (state_) {
    case State::kString:
      if (c == '\\') return go(State::kEscape);
      if (c == '"') return is_key_ ? go(State::kColon) : end_value();
      return static_cast<uint8_t>(c) < 0x20 ? Step::kBad : Step::kMore;
    case State::kEscape:
      n_hex_ = 0;
      code_ = 0;
      if (c == 'u') return go(State::kHex);
      return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? Step::kBad
                                                                              : go(State::kString);
    case State::kPair:
      return c == '\\' ? go(State::kPairU) : Step::kBad;
    case State::kPairU:
      n_hex_ = 0;
      code_ = 0;
      return c == 'u' ? go(State::kHex) : Step::kBad;
    default:
      return hex_digit(c);
  }
}

Scanner::Step Scanner::hex_digit(char c) {
  const int value = hex_value(c);
  if (value < 0) return Step::kBad;
  code_ = static_cast<uint16_t>(code_ << 4 | value);
  if (++n_hex_ < 4) return Step::kMore;
  const bool high = code_ >= 0xD800 && code_ < 0xDC00;
  const bool low = code_ >= 0xDC00 && code_ < 0xE000;
  if (high_ != low) return Step::kBad;
  high_ = high;
  return go(high ? State::kPair : State::kString);
}

Scanner::Step Scanner::number_byte(char c) {
  const bool digit = is_digit(c);
  const bool exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::kMinus:
      if (digit) return go(c == '0' ? State::kZero : State::kDigits);
      return Step::kBad;
    case State::kDigits:
      if (digit) {
        if (n_digits_ < kMostDigits) ++n_digits_;
        return Step::kMore;
      }
      [[fallthrough]];
    case State::kZero:
      if (c == '.') return go(State::kDot);
      if (exponent) return go(State::kExponent);
      break;
    case State::kDot:
      return digit ? go(State::kFraction) : Step::kBad;
    case State::kFraction:
      if (digit) return Step::kMore;
      if (exponent) return go(State::kExponent);
      break;
    case State::kExponent:
      minus_ = c == '-';
      if (minus_ || c == '+') return go(State::kSign);
      [[fallthrough]];
    case State::kSign:
      if (!digit) return Step::kBad;
      power_ = static_cast<uint16_t>(c - '0');
      return go(State::kPower);
    default:  // in the exponent
      if (!digit) break;
      power_ = static_cast<uint16_t>(power_ < kMostDigits ? power_ * 10 + (c - '0') : power_);
      return Step::kMore;
  }
  if (!number_fits() || depth_ == 0) return Step::kBad;
  state_ = State::kAfter;
  return is_space(c) ? Step::kMore : after_value(c);
}

bool Scanner::number_fits() const { return minus_ ? n_digits_ <= 308 : n_digits_ + power_ <= 308; }

Scanner::Step Scanner::after_value(char c) {
  if (c == ',') return go(in_object() ? State::kKey : State::kValue);
  if (c == '}') return close(true);
  if (c == ']') return close(false);
  return Step::kBad;
}

Scanner::Step Scanner::open(bool object) {
  if (depth_ == kMostDepth) return Step::kBad;
  objects_ = (objects_ & ~(uint64_t{1} << depth_)) | uint64_t{object} << depth_;
  ++depth_;
  return go(object ? State::kFirstKey : State::kFirst);
}

Scanner::Step Scanner::close(bool object) {
  if (in_object() != object) return Step::kBad;
  --depth_;
  return end_value();
}

Scanner::Step Scanner::end_value() {
  if (depth_ > 0) return go(State::kAfter);
  state_ = State::kDone;
  return Step::kEnd;
}

bool Scanner::finish() const {
  switch (state_) {
    case State::kDone:
      return true;
    case State::kZero:
    case State::kDigits:
    case State::kFraction:
    case State::kPower:
      return depth_ == 0 && number_fits();
    default:
      return false;
  }
}

}  // namespace moe::json
