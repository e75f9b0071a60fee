// SPDX-License-Identifier: MIT
// Looks for the beginning of a call, withholds what may be one, and gives up what is none.
#include "src/text/chat/tools/parser.h"

#include "src/text/chat/json/text.h"

namespace moe {
namespace {

constexpr size_t kMostSpace = size_t{1} << 16;

}  // namespace

ToolCallParser::ToolCallParser(const ToolFormat& format, std::string_view tools, uint64_t seed,
                               const Allocator& allocator)
    : format_(format),
      tools_(tools),
      seed_(seed),
      buffer_(allocator),
      name_(allocator),
      id_(allocator),
      key_(allocator),
      arguments_(allocator),
      space_(allocator),
      out_(allocator),
      events_(allocator) {}

void ToolCallParser::begin_events() {
  events_.clear();
  out_.clear();
}

Status ToolCallParser::push(std::string_view text) {
  begin_events();
  MOE_TRY(buffer_.append(text));
  MOE_TRY(run());
  compact();
  return {};
}

Status ToolCallParser::run() {
  while (true) {
    if (!inside_) {
      MOE_TRY(scan_outside());
      if (!inside_) return {};
    }
    Step made = Step::kMore;
    MOE_TRY(step(&made));
    if (made == Step::kMore && buffer_.size() - begin_ <= kMostCallBytes) return {};
    if (made == Step::kMore || made == Step::kBad) MOE_TRY(give_up(text_end(made)));
    if (made == Step::kDone) {
      inside_ = false;
      begin_ = pos_;
    }
  }
}

// Where what is no call ends: the same place however the text arrived.
size_t ToolCallParser::text_end(Step made) const {
  const size_t most = begin_ + kMostCallBytes;
  if (made == Step::kBad && pos_ <= most) return std::max(pos_, begin_ + 1);
  size_t end = std::min(most, buffer_.size());
  while (end < buffer_.size() && (static_cast<uint8_t>(view()[end]) & 0xC0) == 0x80) --end;
  return end;
}

// Removes what was decided.
void ToolCallParser::compact() {
  if (begin_ == 0) return;
  const size_t n = buffer_.size() - begin_;
  if (n == 0) {
    buffer_.clear();
  } else {
    buffer_.remove_prefix(begin_);
  }
  pos_ -= std::min(pos_, begin_);
  scan_ -= std::min(scan_, begin_);
  value_begin_ -= std::min(value_begin_, begin_);
  value_end_ -= std::min(value_end_, begin_);
  begin_ = 0;
}

Status ToolCallParser::scan_outside() {
  const std::string_view text = view();
  if (format_.bare && at_start_) {
    size_t at = 0;
    bool undecided = false;
    if (bare_begins(&at, &undecided)) {
      MOE_TRY(begin(begin_, at));
      bare_ = true;
      return {};
    }
    if (undecided) return {};
  }
  const std::string_view open = mark(Mark::kOpen);
  const size_t at = open.empty() ? std::string_view::npos : text.find(open, begin_);
  if (at != std::string_view::npos) {
    MOE_TRY(add_text(between(begin_, at)));
    return begin(at, at + open.size());
  }
  const size_t end = text.size() - begun(slice(text, begin_), open);
  MOE_TRY(add_text(between(begin_, end)));
  begin_ = end;
  return {};
}

// An object at the beginning of a reply, or behind a call and a semicolon.
bool ToolCallParser::bare_begins(size_t* at, bool* undecided) const {
  const std::string_view text = view();
  size_t i = begin_;
  const auto skip = [&] {
    while (i < text.size() && json::is_space(text[i])) ++i;
  };
  skip();
  if (n_calls_ > 0 && i < text.size() && text[i] == ';') {
    const size_t behind = ++i;
    skip();
    if (i - behind > kMostBareSpace) return false;
    *undecided = i == text.size();
  }
  *at = i;
  return i < text.size() && text[i] == '{';
}

Status ToolCallParser::begin(size_t at, size_t pos) {
  inside_ = true;
  begin_ = at;
  n_in_section_ = 0;
  bare_ = as_json_ = fenced_ = quoted_ = false;
  id_.clear();
  pos_ = pos;
  go(0);
  return {};
}

// The text up to `end` is no call. Behind it one may begin.
Status ToolCallParser::give_up(size_t end) {
  inside_ = false;
  const size_t begin = begin_;
  begin_ = std::min(end, buffer_.size());
  return add_text(between(begin, begin_));
}

Status ToolCallParser::add_text(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && json::is_space(text[n])) ++n;
  MOE_TRY(space_.append(slice(text, 0, n)));
  text.remove_prefix(n);
  size_t end = text.size();
  while (end > 0 && json::is_space(text[end - 1])) --end;
  if (end > 0) {
    at_start_ = false;
    if (has_text_ || n_calls_ == 0) MOE_TRY(put_text(space_.view()));
    space_.clear();
    MOE_TRY(put_text(slice(text, 0, end)));
  }
  MOE_TRY(space_.append(slice(text, end)));
  if (space_.size() <= kMostSpace) return {};
  MOE_TRY(put_text(space_.view()));
  space_.clear();
  return {};
}

Status ToolCallParser::put_text(std::string_view text) {
  if (text.empty()) return {};
  has_text_ = true;
  const size_t begin = out_.size();
  MOE_TRY(out_.append(text));
  if (!events_.empty() && !events_.back().call) {
    events_.back().end = out_.size();
    return {};
  }
  return events_.push({false, begin, out_.size()});
}

Status ToolCallParser::finish() {
  begin_events();
  if (inside_) {
    bool done = false;
    MOE_TRY(end_inside(&done));
    if (done) begin_ = buffer_.size();
  }
  MOE_TRY(give_up(buffer_.size()));
  if (n_calls_ == 0) MOE_TRY(put_text(space_.view()));
  space_.clear();
  compact();
  return {};
}

void ToolCallParser::skip_space() {
  while (more() && json::is_space(next())) ++pos_;
}

ToolCallParser::Match ToolCallParser::literal(std::string_view what) {
  const std::string_view rest = slice(view(), pos_);
  if (rest.size() < what.size()) return what.starts_with(rest) ? Match::kMore : Match::kNo;
  if (!rest.starts_with(what)) return Match::kNo;
  pos_ += what.size();
  scan_ = pos_;
  return Match::kYes;
}

// The text before the next `what`, which is taken too.
ToolCallParser::Match ToolCallParser::until(std::string_view what, std::string_view* out) {
  const size_t at = view().find(what, scan_);
  if (at == std::string_view::npos) {
    const size_t searched = buffer_.size() - std::min(buffer_.size(), what.size() - 1);
    scan_ = std::max(scan_, searched);
    return Match::kMore;
  }
  *out = between(pos_, at);
  pos_ = scan_ = at + what.size();
  return Match::kYes;
}

// A JSON value from value_begin_ to value_end_.
ToolCallParser::Match ToolCallParser::value() {
  for (; more(); ++pos_) {
    const json::Scanner::Step step = json_.push(next());
    if (step == json::Scanner::Step::kBad) return Match::kNo;
    if (step == json::Scanner::Step::kMore) continue;
    value_end_ = ++pos_;
    return json::is_valid(between(value_begin_, value_end_)) ? Match::kYes : Match::kNo;
  }
  return Match::kMore;
}

void ToolCallParser::go(int state) {
  state_ = state;
  scan_ = pos_;
}

void ToolCallParser::begin_value(int state) {
  go(state);
  value_begin_ = pos_;
  json_.reset();
}

Status ToolCallParser::step(Step* out) {
  switch (format_.syntax) {
    case ToolSyntax::kJson:
      return step_json(out);
    case ToolSyntax::kTags:
      return step_tags(out);
    case ToolSyntax::kNamed:
      return step_named(out);
    case ToolSyntax::kMistral:
      return step_mistral(out);
    case ToolSyntax::kGemma:
      return step_gemma(out);
    default:
      return step_channel(out);
  }
}

}  // namespace moe
