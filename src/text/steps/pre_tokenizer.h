// SPDX-License-Identifier: MIT
#pragma once
// Splits text into pieces that the model encodes separately.

#include "src/text/steps/text_step.h"

namespace moe {

/// A part of the text.
struct TextPiece {
  uint32_t begin;
  uint32_t end;
  bool at_start;  // at the start of the user's text
};

/// Scratch memory of one encode() call.
struct PreTokenizerScratch {
  explicit PreTokenizerScratch(const Allocator& a)
      : text{Array<char>(a), Array<char>(a)},
        pieces{Array<TextPiece>(a), Array<TextPiece>(a)},
        matches(a) {}

  struct Match {
    uint32_t begin;
    uint32_t end;
    bool is_match;
  };
  Array<char> text[2];
  Array<TextPiece> pieces[2];
  Array<Match> matches;
};

/// A list of steps, each applied to the previous step's pieces. Immutable after create().
class PreTokenizer final {
 public:
  explicit PreTokenizer(const Allocator& allocator) : steps_(allocator) {}

  Status create(std::span<const TextStepSpec> steps, const RegexLibrary& library);

  /// Splits `text` (valid UTF-8). *out and *pieces refer to `text` or `scratch`.
  Status run(std::string_view text, bool at_start, RegexSearch& search,
             PreTokenizerScratch& scratch, std::string_view* out,
             std::span<const TextPiece>* pieces) const;

 private:
  enum class Kind {
    kSplit,
    kByteLevel,
    kMetaspace,
    kDigits,
    kPunctuation,
    kWhitespace,
    kWhitespaceSplit
  };
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Scheme { kAlways, kFirst, kNever };
  struct Step {
    Kind kind = Kind::kSplit;
    Behavior behavior = Behavior::kIsolated;
    Scheme scheme = Scheme::kAlways;
    bool invert = false;
    bool flag = false;
    bool use_regex = false;
    std::string_view content;
    Finder finder;
  };
  struct State;  // current text and pieces
  static Status create_step(const TextStepSpec& spec, const RegexLibrary& library,
                            const Allocator& allocator, Step* step);
  static Status run_step(const Step& step, State& state);
  static Status split(const Step& step, State& state);
  static Status byte_level(const Step& step, State& state);
  static Status metaspace(const Step& step, State& state);
  template <class F>
  static Status split_with(Behavior behavior, State& state, F&& find);
  template <class F>
  static Status split_characters(Behavior behavior, State& state, F&& is_delimiter);
  template <class F>
  static Status rewrite(State& state, F&& write);

  Array<Step> steps_;
};

}  // namespace moe
