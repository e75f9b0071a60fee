// SPDX-License-Identifier: MIT
// The syntaxes whose arguments are no JSON: tags around each, and Gemma's mapping.
#include <algorithm>

#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/parser.h"

namespace moe {
namespace {

enum State { kSection, kName, kNextTag, kKey, kBeforeValue, kValue, kValueEnd };

}  // namespace

Status ToolCallParser::step_tags(Step* out) {
  *out = Step::kGoOn;
  const auto take = [&](Match match, int then) {
    if (match == Match::kYes) {
      go(then);
    } else {
      *out = match == Match::kMore ? Step::kMore : Step::kBad;
    }
  };
  std::string_view text;
  switch (state_) {
    case kSection:
      return step_section(out);
    case kName:
      return step_tag_name(out);
    case kNextTag:
      return step_next_tag(out);
    case kKey: {
      const Match match = until(mark(Mark::kKeyEnd), &text);
      if (match == Match::kYes) MOE_TRY(key_.assign(json::trimmed(text)));
      take(match, mark(Mark::kValueOpen).empty() ? kValue : kBeforeValue);
      value_begin_ = pos_;
      return {};
    }
    case kBeforeValue:
      skip_space();
      take(literal(mark(Mark::kValueOpen)), kValue);
      value_begin_ = pos_;
      return {};
    case kValue: {
      const Match match = until(mark(Mark::kValueEnd), &text);
      value_end_ = pos_ - mark(Mark::kValueEnd).size();
      take(match, kValueEnd);
      return {};
    }
    default:
      return step_value_end(out);
  }
}

// Between the calls of a section.
Status ToolCallParser::step_section(Step* out) {
  const std::string_view call = mark(Mark::kCallOpen);
  const std::string_view close = mark(Mark::kClose);
  if (n_in_section_ > 0 && close.empty()) {
    *out = Step::kDone;
    return {};
  }
  skip_space();
  const Match open = literal(call);
  if (open == Match::kYes) {
    MOE_TRY(arguments_.assign("{"));
    go(kName);
    return {};
  }
  const Match end = n_in_section_ == 0 ? Match::kNo : literal(close);
  if (end == Match::kYes) {
    *out = Step::kDone;
  } else {
    *out = open == Match::kMore || end == Match::kMore ? Step::kMore : Step::kBad;
  }
  return {};
}

// Without a mark behind it a name ends with its line or where a tag begins.
Status ToolCallParser::step_tag_name(Step* out) {
  const std::string_view end = mark(Mark::kNameEnd);
  const size_t begin = pos_;
  std::string_view text;
  Match match = Match::kMore;
  if (!end.empty()) {
    match = until(end, &text);
  } else {
    const size_t at = view().find_first_of("\n<", scan_);
    scan_ = buffer_.size();
    if (at != std::string_view::npos) {
      text = between(pos_, at);
      pos_ = at;
      match = Match::kYes;
    }
  }
  // The same for any cut of the text, as in step_mistral().
  const size_t n_end = std::max<size_t>(end.size(), 1);
  if (match == Match::kYes ? text.size() > kMostName
                           : buffer_.size() - begin >= kMostName + n_end) {
    pos_ = begin;
    return kept(Step::kBad, out);
  }
  if (match == Match::kMore) return kept(Step::kMore, out);
  text = json::trimmed(text);
  const bool bad = text.empty() || text.find_first_of("\n<>{}\"") != std::string_view::npos;
  MOE_TRY(name_.assign(text));
  *out = bad ? Step::kBad : Step::kGoOn;
  go(kNextTag);
  return {};
}

// Before an argument, or the end of the call.
Status ToolCallParser::step_next_tag(Step* out) {
  skip_space();
  const Match key = literal(mark(Mark::kKeyOpen));
  if (key == Match::kYes) {
    go(kKey);
    return {};
  }
  const Match end = literal(mark(Mark::kCallClose));
  if (end != Match::kYes) {
    *out = key == Match::kMore || end == Match::kMore ? Step::kMore : Step::kBad;
    return {};
  }
  MOE_TRY(arguments_.append("}"));
  bool good = false;
  MOE_TRY(named_call(arguments_.view(), &good));
  *out = good ? Step::kGoOn : Step::kBad;
  go(kSection);
  return {};
}

// A value may contain the mark of its end: it is one only before another tag.
Status ToolCallParser::step_value_end(Step* out) {
  skip_space();
  const size_t at = pos_;
  for (const Mark m : {Mark::kKeyOpen, Mark::kCallClose}) {
    const Match match = literal(mark(m));
    if (match == Match::kNo) continue;
    if (match == Match::kMore) {
      *out = Step::kMore;
      return {};
    }
    pos_ = at;
    std::string_view text = between(value_begin_, value_end_);
    if (format_.lines && text.starts_with("\n")) text.remove_prefix(1);
    if (format_.lines && text.ends_with("\n")) text.remove_suffix(1);
    MOE_TRY(add_argument(key_.view(), text));
    go(kNextTag);
    return {};
  }
  go(kValue);
  return {};
}

// "call:NAME{" and everything to the first close outside strings.
Status ToolCallParser::step_gemma(Step* out) {
  const std::string_view quote = mark(Mark::kKeyOpen);
  const std::string_view close = mark(Mark::kClose);
  if (state_ == 0) {
    value_begin_ = pos_;
    go(1);
  }
  for (; scan_ < buffer_.size(); ++scan_) {
    const std::string_view rest = slice(view(), scan_);
    if (rest.size() < std::max(quote.size(), close.size()) &&
        (quote.starts_with(rest) || close.starts_with(rest))) {
      break;
    }
    if (rest.starts_with(quote)) {
      quoted_ = !quoted_;
      scan_ += quote.size() - 1;
    } else if (!quoted_ && rest.starts_with(close)) {
      value_end_ = scan_;
      pos_ = scan_ + close.size();
      bool good = false;
      MOE_TRY(gemma_call(between(value_begin_, value_end_), &good));
      *out = good ? Step::kDone : Step::kBad;
      return {};
    }
  }
  *out = Step::kMore;
  return {};
}

}  // namespace moe
