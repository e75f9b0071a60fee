// SPDX-License-Identifier: MIT
// The syntaxes whose arguments are a JSON object: an automaton for each, whose states are in the
// order in which a call passes through them.
#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/parser.h"

namespace moe {
namespace {

bool ends_name(char c) { return c == '\n' || c == '<' || c == '>' || c == '{' || c == '['; }

}  // namespace

// An object at the beginning of a reply is withheld only while it begins as a call.
ToolCallParser::Match ToolCallParser::begins_as_call() {
  const size_t begin = pos_;
  ++pos_;
  skip_space();
  Match found = Match::kNo;
  for (const char* key : {"\"name\"", "\"type\"", "\"parameters\"", "\"arguments\"", "\"id\""}) {
    const Match match = literal(key);
    if (match == Match::kNo) continue;
    found = match;
    break;
  }
  if (found != Match::kNo) pos_ = begin;
  return found;
}

// States: before the value, in it, behind it.
Status ToolCallParser::step_json(Step* out) {
  if (state_ == 0) {
    skip_space();
    *out = Step::kMore;
    if (!more()) return {};
    *out = Step::kBad;
    if (next() != '{' && next() != '[') return {};
    const Match match = bare_ ? begins_as_call() : Match::kYes;
    if (match == Match::kMore) *out = Step::kMore;
    if (match != Match::kYes) return {};
    begin_value(1);
  }
  const std::string_view close = mark(Mark::kClose);
  if (state_ == 1) {
    const Match match = value();
    *out = match == Match::kMore ? Step::kMore : Step::kBad;
    if (match != Match::kYes) return {};
    go(2);
  }
  skip_space();
  const Match match = close.empty() ? Match::kYes : literal(close);
  *out = match == Match::kMore ? Step::kMore : Step::kBad;
  if (match != Match::kYes) return {};
  bool good = false;
  MOE_TRY(json_calls(between(value_begin_, value_end_), &good));
  if (good) *out = Step::kDone;
  return {};
}

// States: before a call, in the name, behind it, in the line with the name, before the arguments,
// in them, behind them, behind a block of Markdown.
Status ToolCallParser::step_named(Step* out) {
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
    case 0: {
      skip_space();
      const Match open = literal(mark(Mark::kCallOpen));
      if (open == Match::kYes) {
        go(1);
        return {};
      }
      const Match close = n_in_section_ == 0 ? Match::kNo : literal(mark(Mark::kClose));
      if (close == Match::kYes) {
        *out = Step::kDone;
      } else {
        *out = open == Match::kMore || close == Match::kMore ? Step::kMore : Step::kBad;
      }
      return {};
    }
    case 1: {
      const Match match = until(mark(Mark::kNameEnd), &text);
      const bool too_long_name =
          match == Match::kYes ? text.size() > kMostName : buffer_.size() - pos_ > kMostName + 64;
      if (too_long_name) {
        *out = Step::kBad;
        return {};
      }
      if (match == Match::kYes) MOE_TRY(read_name(text));
      take(match, 2);
      return {};
    }
    case 2:
      skip_space();
      *out = more() ? Step::kGoOn : Step::kMore;
      fenced_ = more() && next() != '{';
      if (more()) go(fenced_ ? 3 : 4);
      return {};
    case 3: {  // an older form: its mark is behind the word "function"
      const Match match = until("\n", &text);
      if (match == Match::kYes) MOE_TRY(read_name(text));
      if (match == Match::kMore && buffer_.size() - pos_ > kMostName) {
        *out = Step::kBad;
        return {};
      }
      take(match, 4);
      return {};
    }
    case 4:
      skip_space();
      if (fenced_) {
        take(literal("```json"), 4);
        if (*out != Step::kGoOn) return {};
        skip_space();
      }
      *out = !more() ? Step::kMore : next() == '{' && !name_.empty() ? Step::kGoOn : Step::kBad;
      if (*out == Step::kMore && fenced_) go(8);
      if (*out == Step::kGoOn) begin_value(5);
      return {};
    case 8:  // behind the mark of the block
      skip_space();
      *out = !more() ? Step::kMore : next() == '{' ? Step::kGoOn : Step::kBad;
      if (*out == Step::kGoOn) begin_value(5);
      return {};
    case 5:
      take(value(), fenced_ ? 6 : 7);
      return {};
    case 6:
      skip_space();
      take(literal("```"), 7);
      return {};
    default:
      break;
  }
  skip_space();
  take(literal(mark(Mark::kCallClose)), 0);
  if (*out != Step::kGoOn) return {};
  bool good = false;
  MOE_TRY(named_call(between(value_begin_, value_end_), &good));
  if (!good) *out = Step::kBad;
  return {};
}

// "functions.NAME:3" is an id of Kimi, and tells the name.
Status ToolCallParser::read_name(std::string_view text) {
  constexpr std::string_view kFunctions = "functions.";
  text = json::trimmed(text);
  id_.clear();
  if (text.starts_with(kFunctions)) {
    MOE_TRY(id_.assign(text));
    text.remove_prefix(kFunctions.size());
    text = slice(text, 0, text.find(':'));
  }
  return name_.assign(text);
}

// States: before the name or the list, in the name, in the id, before the arguments, in them. The
// list is that of step_json.
Status ToolCallParser::step_mistral(Step* out) {
  *out = Step::kGoOn;
  if (as_json_) return step_json(out);
  if (state_ == 0) {
    skip_space();
    if (more() && (next() == '[' || next() == '{')) {
      as_json_ = true;
      return {};
    }
    value_begin_ = pos_;
    *out = more() ? Step::kGoOn : Step::kMore;
    if (more()) go(1);
    return {};
  }
  const auto take = [&](Match match, int then) {
    if (match == Match::kYes) {
      go(then);
    } else {
      *out = match == Match::kMore ? Step::kMore : Step::kBad;
    }
  };
  switch (state_) {
    case 1: {
      while (more() && !ends_name(next()) && pos_ - value_begin_ <= kMostName) ++pos_;
      *out = more() ? Step::kBad : Step::kMore;
      if (!more() || (next() != '[' && next() != '{')) return {};
      MOE_TRY(name_.assign(json::trimmed(between(value_begin_, pos_))));
      if (name_.empty()) return {};
      go(2);
      *out = Step::kGoOn;
      return {};
    }
    case 2: {
      if (next() == '{') {
        begin_value(5);
        return {};
      }
      const Match id = literal(mark(Mark::kKeyOpen));
      const Match end = id == Match::kYes ? Match::kNo : literal(mark(Mark::kNameEnd));
      if (id == Match::kYes) {
        go(3);
      } else if (end == Match::kYes) {
        go(4);
      } else {
        *out = id == Match::kMore || end == Match::kMore ? Step::kMore : Step::kBad;
      }
      return {};
    }
    case 3: {
      std::string_view text;
      const Match match = until(mark(Mark::kNameEnd), &text);
      if (match == Match::kMore && buffer_.size() - pos_ > kMostName) {
        *out = Step::kBad;
        return {};
      }
      if (match == Match::kYes) MOE_TRY(id_.assign(json::trimmed(text)));
      take(match, 4);
      return {};
    }
    case 4:
      skip_space();
      *out = !more() ? Step::kMore : next() == '{' ? Step::kGoOn : Step::kBad;
      if (*out == Step::kGoOn) begin_value(5);
      return {};
    default:
      break;
  }
  take(value(), 5);
  if (*out != Step::kGoOn) return {};
  bool good = false;
  MOE_TRY(named_call(between(value_begin_, value_end_), &good));
  *out = good ? Step::kDone : Step::kBad;
  return {};
}

Status ToolCallParser::step_channel(Step* out) {
  *out = Step::kMore;
  if (state_ == 0) skip_space();
  if (!more()) return {};
  if (state_ == 0) begin_value(1);
  const Match match = next() == '{' || pos_ > value_begin_ ? value() : Match::kNo;
  *out = match == Match::kMore ? Step::kMore : Step::kBad;
  if (match != Match::kYes) return {};
  bool good = false;
  MOE_TRY(named_call(between(value_begin_, value_end_), &good));
  if (good) *out = Step::kDone;
  return {};
}

Status ToolCallParser::begin_call(std::string_view name) {
  begin_events();
  MOE_TRY(give_up(buffer_.size()));
  MOE_TRY(buffer_.append("to=functions."));
  MOE_TRY(buffer_.append(name));
  MOE_TRY(buffer_.append(" "));
  MOE_TRY(begin(begin_, buffer_.size()));
  MOE_TRY(name_.assign(name));
  compact();
  return {};
}

// A call without a text has no arguments.
Status ToolCallParser::end_call() {
  begin_events();
  if (!inside_) return {};
  bool done = false;
  MOE_TRY(end_inside(&done));
  if (done) begin_ = buffer_.size();
  MOE_TRY(give_up(buffer_.size()));
  compact();
  return {};
}

// Whether what stands at the end of a reply is a call but for its last marks.
Status ToolCallParser::end_inside(bool* done) {
  *done = false;
  if (too_long()) return {};
  const std::string_view given = between(value_begin_, value_end_);
  switch (format_.syntax) {
    case ToolSyntax::kJson:
      return state_ == 2 ? json_calls(given, done) : Status();
    case ToolSyntax::kNamed:
      if (state_ == 0) *done = n_in_section_ > 0;
      return state_ == 6 || state_ == 7 ? named_call(given, done) : Status();
    case ToolSyntax::kTags:
      *done = state_ == 0 && n_in_section_ > 0;
      return {};
    case ToolSyntax::kChannels:
      return state_ == 0 ? named_call("{}", done) : Status();
    default:
      return {};
  }
}

}  // namespace moe
