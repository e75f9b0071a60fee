// SPDX-License-Identifier: MIT
#pragma once
// Finds calls of tools in a reply while it is generated.

#include "src/base/string.h"
#include "src/text/chat/json/scanner.h"
#include "src/text/chat/tools/format.h"

namespace moe {

/// Splits a reply into text and calls. Text that could belong to a call is withheld until that is
/// decided; what is no whole call with valid arguments is text. However a reply is cut into pushes,
/// the calls and the joined texts are the same. White space next to a call is not text, except
/// between two texts. Takes time by the length of the reply. One thread.
class ToolCallParser final {
 public:
  /// A call that takes more than this is text: so much is withheld at most.
  static constexpr size_t kMostCallBytes = size_t{1} << 20;
  static constexpr size_t kMostName = 256;  // bytes of a tool's name
  /// White space before the brace or the first key of a call without a mark. It is read again with
  /// each piece of the reply until the call is certain.
  static constexpr size_t kMostBareSpace = 64;

  /// A text, or a call as {"id": "...", "name": "...", "arguments": {...}}, in this order and with
  /// this white space; the arguments are valid JSON as the model wrote them.
  struct Event {
    bool call = false;
    std::string_view text;
  };

  /// tools: the valid JSON list that the model was given, or empty; it must outlive the parser.
  /// seed: for the ids of calls to which the model gives none: letters and digits, nine of them.
  ToolCallParser(const ToolFormat& format, std::string_view tools, uint64_t seed,
                 const Allocator& allocator);

  /// Takes the next text; marks that are special tokens are spelled out in it.
  Status push(std::string_view text);
  /// The reply ends here: what was withheld is a call or text.
  Status finish();
  /// In a format with channels: what follows, until end_call(), is for that tool.
  Status begin_call(std::string_view name);
  Status end_call();

  /// The events of the last of these calls; valid until the next one.
  size_t n_events() const { return events_.size(); }
  Event event(size_t i) const {
    const Found& found = events_[i];
    return {found.call, slice(out_.view(), found.begin, found.end - found.begin)};
  }
  int n_calls() const { return n_calls_; }

 private:
  enum class Match : uint8_t { kMore, kYes, kNo };
  enum class Step : uint8_t { kMore, kGoOn, kBad, kDone };
  struct Found {
    bool call;
    size_t begin;
    size_t end;
  };
  using Mark = ToolFormat::Mark;

  // outside calls (parser.cpp)
  void begin_events();
  Status run();
  Status scan_outside();
  bool bare_begins(size_t* at, bool* undecided) const;
  Status begin(size_t at, size_t pos);
  bool too_long() const { return pos_ - begin_ > kMostCallBytes; }
  Status give_up(size_t end);
  size_t text_end(Step made) const;
  Status add_text(std::string_view text);
  Status put_text(std::string_view text);
  void compact();

  // reading the text of a call (parser.cpp)
  std::string_view view() const { return buffer_.view(); }
  std::string_view mark(Mark m) const { return format_.marks[m]; }
  std::string_view between(size_t begin, size_t end) const {
    return slice(view(), begin, end - begin);
  }
  bool more() const { return pos_ < buffer_.size(); }
  char next() const { return view()[pos_]; }
  void skip_space();
  Match literal(std::string_view what);
  Match until(std::string_view what, std::string_view* out);
  Match value();
  void go(int state);
  void begin_value(int state);

  // the syntaxes: each takes a step, and says at the end whether what it has is a call
  Status step(Step* out);
  Status step_json(Step* out);
  Status step_tags(Step* out);
  Status step_section(Step* out);
  Status step_tag_name(Step* out);
  Status step_next_tag(Step* out);
  Status step_value_end(Step* out);
  Status step_named(Step* out);
  Status step_mistral(Step* out);
  Status step_gemma(Step* out);
  Status step_channel(Step* out);
  Match begins_as_call();
  Status read_name(std::string_view text);
  Step step_next_call();
  Status step_name(std::string_view end, int then, Step* out);
  Step step_arguments(int then);
  Step step_mistral_marks();
  /// The step that a match makes: into the state `then`, if it is one.
  Step taken(Match match, int then) {
    if (match != Match::kYes) return match == Match::kMore ? Step::kMore : Step::kBad;
    go(then);
    return Step::kGoOn;
  }
  static Status kept(Step step, Step* out) {
    *out = step;
    return {};
  }
  Status end_inside(bool* done);

  // calls (calls.cpp)
  Status json_calls(std::string_view value, bool* good);
  Status json_call(std::string_view object, bool report_it, bool* good);
  Status named_call(std::string_view arguments, bool* good);
  Status gemma_call(std::string_view text, bool* good);
  Status add_argument(std::string_view key, std::string_view text);
  Status report(std::string_view id, std::string_view name, std::string_view arguments);
  bool has_tool(std::string_view name) const;

  const ToolFormat& format_;
  const std::string_view tools_;
  const uint64_t seed_;
  String buffer_;     // text that is not yet decided, from begin_ on
  size_t begin_ = 0;  // of the undecided text, or of the call
  size_t pos_ = 0;    // in a call: what was read
  size_t scan_ = 0;   // in a call: where until() goes on
  bool inside_ = false;
  int state_ = 0;  // of the syntax
  int n_in_section_ = 0;
  bool bare_ = false;     // a call without its mark
  bool as_json_ = false;  // kMistral: the old form
  bool fenced_ = false;   // kNamed: the arguments stand in a block of Markdown
  bool quoted_ = false;   // kGemma: in a string
  size_t value_begin_ = 0;
  size_t value_end_ = 0;
  json::Scanner json_;
  String name_;
  String id_;
  String key_;
  String arguments_;
  String space_;           // white space that is text only if text follows
  bool has_text_ = false;  // text was given
  bool at_start_ = true;   // nothing but white space and calls so far
  int n_calls_ = 0;
  String out_;
  Array<Found> events_;
};

}  // namespace moe
