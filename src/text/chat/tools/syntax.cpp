// SPDX-License-Identifier: MIT
// The syntaxes whose arguments are a JSON object: an automaton for each, whose states are in the
// order in which a call passes through them.
#include "src/text/chat/json/text.h"
#include "src/text/chat/tools/parser.h"

namespace moe {
namespace {

// The states in which a call by its name is read, in their order ...
enum Named { kBeforeCall, kInName, kBehindName, kInLine, kFence, kArguments, kBehindFence, kEnd };
// ... and one of Mistral's newer form.
enum Mistral { kMistralBegin, kMistralName, kMistralMarks, kMistralId, kMistralArguments };

bool ends_name(char c) { return c == '\n' || c == '<' || c == '>' || c == '{' || c == '['; }

}  // namespace

// An object at the beginning of a reply is withheld only while it begins as a call.
ToolCallParser::Match ToolCallParser::begins_as_call() {
  const size_t begin = pos_;
  const size_t most = ++pos_ + kMostBareSpace;
  for (; more() && json::is_space(next()); ++pos_) {
    if (pos_ == most) return Match::kNo;
  }
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
  if (!close.empty()) skip_space();
  const Match match = close.empty() ? Match::kYes : literal(close);
  *out = match == Match::kMore ? Step::kMore : Step::kBad;
  if (match != Match::kYes) return {};
  bool good = false;
  MOE_TRY(json_calls(between(value_begin_, value_end_), &good));
  if (good) *out = Step::kDone;
  return {};
}

Status ToolCallParser::step_named(Step* out) {
  switch (state_) {
    case kBeforeCall:
      *out = step_next_call();
      return {};
    case kInName:
      return step_name(mark(Mark::kNameEnd), kBehindName, out);
    case kBehindName:  // an older form has only the word "function" before its mark
      skip_space();
      if (!more()) return kept(Step::kMore, out);
      fenced_ = next() != '{';
      go(fenced_ ? kInLine : kArguments);
      if (!fenced_) begin_value(kArguments);
      return kept(Step::kGoOn, out);
    case kInLine:
      return step_name("\n", kFence, out);
    case kFence:
      skip_space();
      *out = taken(literal("```json"), kArguments);
      value_begin_ = pos_;
      json_.reset();
      return {};
    case kArguments:
      *out = step_arguments(fenced_ ? kBehindFence : kEnd);
      return {};
    case kBehindFence:
      skip_space();
      return kept(taken(literal("```"), kEnd), out);
    default:
      break;
  }
  skip_space();
  *out = taken(literal(mark(Mark::kCallClose)), kBeforeCall);
  if (*out != Step::kGoOn) return {};
  bool good = false;
  MOE_TRY(named_call(between(value_begin_, value_end_), &good));
  return kept(good ? Step::kGoOn : Step::kBad, out);
}

// Between the calls of a section, or at its end.
ToolCallParser::Step ToolCallParser::step_next_call() {
  skip_space();
  const Match open = literal(mark(Mark::kCallOpen));
  if (open == Match::kYes) return taken(open, kInName);
  const Match close = n_in_section_ == 0 ? Match::kNo : literal(mark(Mark::kClose));
  if (close == Match::kYes) return Step::kDone;
  return open == Match::kMore || close == Match::kMore ? Step::kMore : Step::kBad;
}

// Reads a name, or what stands in its place, up to `end`.
Status ToolCallParser::step_name(std::string_view end, int then, Step* out) {
  std::string_view text;
  const Match match = until(end, &text);
  const size_t n = match == Match::kYes ? text.size() : buffer_.size() - pos_;
  if (n > kMostName + (match == Match::kYes ? 0 : end.size())) return kept(Step::kBad, out);
  if (match == Match::kYes) MOE_TRY(read_name(text));
  return kept(taken(match, then), out);
}

// An object from value_begin_ on, which white space may precede.
ToolCallParser::Step ToolCallParser::step_arguments(int then) {
  if (pos_ == value_begin_) {
    skip_space();
    value_begin_ = pos_;
    if (!more()) return Step::kMore;
    if (next() != '{' || name_.empty()) return Step::kBad;
  }
  return taken(value(), then);
}

// "functions.NAME:3" is an id of Kimi, and tells the name.
Status ToolCallParser::read_name(std::string_view text) {
  constexpr std::string_view kFunctions = "functions.";
  text = json::trimmed(text);
  id_.clear();
  if (text.starts_with(kFunctions) && std::string_view(format_.name) == "kimi-k2") {
    MOE_TRY(id_.assign(text));
    text.remove_prefix(kFunctions.size());
    text = slice(text, 0, text.find(':'));
  }
  return name_.assign(text);
}

// The older form is that of step_json.
Status ToolCallParser::step_mistral(Step* out) {
  if (as_json_) return step_json(out);
  switch (state_) {
    case kMistralBegin:
      skip_space();
      if (!more()) return kept(Step::kMore, out);
      as_json_ = next() == '[' || next() == '{';
      value_begin_ = pos_;
      if (!as_json_) go(kMistralName);
      return kept(Step::kGoOn, out);
    case kMistralName:
      while (more() && !ends_name(next()) && pos_ - value_begin_ <= kMostName) ++pos_;
      if (!more()) return kept(Step::kMore, out);
      MOE_TRY(name_.assign(json::trimmed(between(value_begin_, pos_))));
      if (name_.empty() || (next() != '[' && next() != '{')) return kept(Step::kBad, out);
      go(kMistralMarks);
      return kept(Step::kGoOn, out);
    case kMistralMarks:
      *out = step_mistral_marks();
      return {};
    case kMistralId: {
      // The same for any cut of the text: an id is too long, or its end is in what is there.
      const std::string_view end = mark(Mark::kNameEnd);
      const size_t begin = pos_;
      std::string_view id;
      const Match match = until(end, &id);
      if (match == Match::kYes ? id.size() > kMostName
                               : buffer_.size() - begin >= kMostName + end.size()) {
        pos_ = begin;
        return kept(Step::kBad, out);
      }
      MOE_TRY(id_.assign(json::trimmed(id)));
      *out = taken(match, kMistralArguments);
      if (match == Match::kYes) begin_value(kMistralArguments);
      return {};
    }
    default:
      break;
  }
  *out = step_arguments(kMistralArguments);
  if (*out != Step::kGoOn) return {};
  bool good = false;
  MOE_TRY(named_call(between(value_begin_, value_end_), &good));
  return kept(good ? Step::kDone : Step::kBad, out);
}

// Behind the name: the mark of an id, that of the arguments, or these themselves.
ToolCallParser::Step ToolCallParser::step_mistral_marks() {
  Match id = Match::kNo;
  Match end = Match::kYes;
  if (next() != '{') {
    id = literal(mark(Mark::kKeyOpen));
    end = id == Match::kYes ? Match::kNo : literal(mark(Mark::kNameEnd));
  }
  if (id == Match::kYes) return taken(id, kMistralId);
  if (end != Match::kYes && id == Match::kMore) return Step::kMore;
  if (end == Match::kYes) begin_value(kMistralArguments);
  return taken(end, kMistralArguments);
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
      if (state_ == kBeforeCall) *done = n_in_section_ > 0;
      return state_ == kBehindFence || state_ == kEnd ? named_call(given, done) : Status();
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
