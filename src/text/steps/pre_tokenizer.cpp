// SPDX-License-Identifier: MIT
// Creates and runs the steps of a pre-tokenizer; each splits or rewrites the pieces of the one
// before it.
#include "src/text/steps/pre_tokenizer.h"

#include "src/text/characters/byte_level.h"
#include "src/text/characters/unicode.h"
#include "src/text/characters/unicode8.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

using Match = PreTokenizerScratch::Match;

constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

template <class T, size_t n>
Status look_up(const char* what, std::string_view name,
               const std::pair<std::string_view, T> (&table)[n], T* out) {
  for (const auto& [key, value] : table) {
    if (key != name) continue;
    *out = value;
    return {};
  }
  return Status::error(MOE_ERR_UNSUPPORTED, "unknown %s \"%.*s\"", what,
                       static_cast<int>(std::min<size_t>(name.size(), 40)), name.data());
}

// Words of letters and runs of other visible characters, like \w+|[^\w\s]+.
enum class WordClass { kSpace, kWord, kOther };
WordClass word_class(uint32_t code) {
  if (is_word(code)) return WordClass::kWord;
  return is_white_space(code) ? WordClass::kSpace : WordClass::kOther;
}

}  // namespace

struct PreTokenizer::State {
  std::string_view text;
  size_t pieces = 0;  // index of the current scratch.pieces
  size_t buffer = 0;  // index of the free scratch.text
  RegexSearch& search;
  PreTokenizerScratch& scratch;

  Array<TextPiece>& current() { return scratch.pieces[pieces]; }
  Array<TextPiece>& next() {
    Array<TextPiece>& n = scratch.pieces[pieces ^ 1];
    n.clear();
    return n;
  }
  std::string_view view(const TextPiece& p) const { return slice(text, p.begin, p.end - p.begin); }
};

Status PreTokenizer::create(std::span<const TextStepSpec> specs, const RegexLibrary& library) {
  if (specs.size() > kMaxSteps) {
    return Status::error(MOE_ERR_FORMAT, "pre-tokenizer: %zu steps, at most %zu", specs.size(),
                         kMaxSteps);
  }
  MOE_TRY(steps_.resize(specs.size()));
  for (size_t i = 0; i < specs.size(); ++i) {
    const Status s = create_step(specs[i], library, steps_.allocator(), &steps_[i]);
    if (!s.ok()) {
      return s.with_context("pre-tokenizer %.*s",
                            static_cast<int>(std::min<size_t>(specs[i].kind.size(), 40)),
                            specs[i].kind.data());
    }
  }
  return {};
}

Status PreTokenizer::create_step(const TextStepSpec& spec, const RegexLibrary& library,
                                 const Allocator& allocator, Step* step) {
  static constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"split", Kind::kSplit},
      {"byte_level", Kind::kByteLevel},
      {"metaspace", Kind::kMetaspace},
      {"digits", Kind::kDigits},
      {"punctuation", Kind::kPunctuation},
      {"whitespace", Kind::kWhitespace},
      {"whitespace_split", Kind::kWhitespaceSplit}};
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"removed", Behavior::kRemoved},
      {"isolated", Behavior::kIsolated},
      {"merged_with_previous", Behavior::kMergedWithPrevious},
      {"merged_with_next", Behavior::kMergedWithNext},
      {"contiguous", Behavior::kContiguous}};
  static constexpr std::pair<std::string_view, Scheme> kSchemes[] = {
      {"always", Scheme::kAlways}, {"first", Scheme::kFirst}, {"never", Scheme::kNever}};

  MOE_TRY(look_up("kind", spec.kind, kKinds, &step->kind));
  MOE_TRY(check_content(spec));
  step->content = spec.content;
  step->invert = spec.invert;
  step->flag = spec.flag;
  step->use_regex = spec.regex;
  if (step->kind == Kind::kSplit || step->kind == Kind::kPunctuation) {
    MOE_TRY(look_up("behavior", spec.behavior, kBehaviors, &step->behavior));
  }
  if (step->kind == Kind::kSplit) return step->finder.create(spec, library, allocator);
  if (step->kind == Kind::kMetaspace) {
    MOE_TRY(look_up("scheme", spec.scheme, kSchemes, &step->scheme));
    if (!is_one_character(spec.content)) {
      return Status::error(MOE_ERR_FORMAT, "content: expected one character");
    }
  }
  if (step->kind == Kind::kByteLevel && spec.regex) {
    TextStepSpec gpt2;
    gpt2.pattern = kGpt2Pattern;
    gpt2.regex = true;
    return step->finder.create(gpt2, library, allocator);
  }
  return {};
}

Status PreTokenizer::run(std::string_view text, bool at_start, RegexSearch& search,
                         PreTokenizerScratch& scratch, std::string_view* out,
                         std::span<const TextPiece>* pieces) const {
  State state{text, 0, 0, search, scratch};
  state.current().clear();
  if (!text.empty()) {
    MOE_TRY(state.current().push({0, static_cast<uint32_t>(text.size()), at_start}));
  }
  for (const Step& step : steps_) {
    MOE_TRY(run_step(step, state));
    MOE_TRY(check_growth(state.text.size(), text.size()));
  }
  *out = state.text;
  *pieces = state.current().span();
  return {};
}

// Splits every piece at the matches and gaps that find(piece, add) reports in order.
template <class F>
Status PreTokenizer::split_with(Behavior behavior, State& state, F&& find) {
  Array<TextPiece>& out = state.next();
  Array<Match>& matches = state.scratch.matches;
  for (const TextPiece& piece : state.current()) {
    matches.clear();
    const auto add = [&](size_t begin, size_t end, bool is_match) -> Status {
      return matches.push({piece.begin + static_cast<uint32_t>(begin),
                           piece.begin + static_cast<uint32_t>(end), is_match});
    };
    MOE_TRY(find(state.view(piece), add));
    const auto emit = [&](uint32_t begin, uint32_t end) -> Status {
      if (begin == end) return {};
      return out.push({begin, end, piece.at_start && begin == piece.begin});
    };
    if (behavior == Behavior::kMergedWithNext) {
      // A match joins the gap that follows it.
      for (size_t i = 0; i < matches.size(); ++i) {
        const bool joins =
            matches[i].is_match && i + 1 < matches.size() && !matches[i + 1].is_match;
        MOE_TRY(emit(matches[i].begin, matches[i + (joins ? 1 : 0)].end));
        if (joins) ++i;
      }
      continue;
    }
    for (size_t i = 0; i < matches.size();) {
      const Match m = matches[i++];
      uint32_t end = m.end;
      if (behavior == Behavior::kMergedWithPrevious && !m.is_match && i < matches.size()) {
        if (matches[i].is_match) end = matches[i++].end;
      }
      if (behavior == Behavior::kContiguous) {
        while (i < matches.size() && matches[i].is_match == m.is_match) end = matches[i++].end;
      }
      if (behavior == Behavior::kRemoved && m.is_match) continue;
      MOE_TRY(emit(m.begin, end));
    }
  }
  state.pieces ^= 1;
  return {};
}

template <class F>
Status PreTokenizer::split_characters(Behavior behavior, State& state, F&& is_delimiter) {
  return split_with(behavior, state, [&](std::string_view text, auto& add) -> Status {
    size_t gap = 0;
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = utf8_next(text.data() + i);
      if (is_delimiter(c.code)) {
        if (gap < i) MOE_TRY(add(gap, i, false));
        MOE_TRY(add(i, i + c.length, true));
        gap = i + c.length;
      }
      i += c.length;
    }
    return gap < text.size() ? add(gap, text.size(), false) : Status();
  });
}

Status PreTokenizer::split(const Step& step, State& state) {
  return split_with(step.behavior, state, [&](std::string_view text, auto& add) -> Status {
    size_t gap = 0;
    const auto found = [&](size_t begin, size_t end) -> Status {
      if (gap != begin) MOE_TRY(add(gap, begin, step.invert));
      gap = end;
      return add(begin, end, !step.invert);
    };
    MOE_TRY(step.finder.for_each(text, state.search, found));
    return gap != text.size() ? add(gap, text.size(), step.invert) : Status();
  });
}

// Rewrites every piece: write(piece's text, at_start, buffer).
template <class F>
Status PreTokenizer::rewrite(State& state, F&& write) {
  Array<char>& buffer = state.scratch.text[state.buffer];
  buffer.clear();
  for (TextPiece& piece : state.current()) {
    const auto begin = static_cast<uint32_t>(buffer.size());
    MOE_TRY(write(state.view(piece), piece.at_start, buffer));
    if (buffer.size() > kMaxGrownBytes) {
      return Status::error(MOE_ERR_TEXT, "text: grows beyond %zu bytes", kMaxGrownBytes);
    }
    piece.begin = begin;
    piece.end = static_cast<uint32_t>(buffer.size());
  }
  state.text = {buffer.data(), buffer.size()};
  state.buffer ^= 1;
  return {};
}

Status PreTokenizer::byte_level(const Step& step, State& state) {
  bool add_space = false;
  for (const TextPiece& piece : state.current()) {
    add_space = add_space || (step.flag && state.text[piece.begin] != ' ');
  }
  if (add_space) {
    const auto prefixed = [](std::string_view text, bool, Array<char>& out) -> Status {
      if (text[0] != ' ') MOE_TRY(append(out, " "));
      return append(out, text);
    };
    MOE_TRY(rewrite(state, prefixed));
  }
  if (step.use_regex) MOE_TRY(split(step, state));
  return rewrite(state, [](std::string_view text, bool, Array<char>& out) {
    return to_byte_level(text, out);
  });
}

Status PreTokenizer::metaspace(const Step& step, State& state) {
  const auto replaced = [&](std::string_view text, bool at_start, Array<char>& out) -> Status {
    const bool has_one = text[0] == ' ' || slice(text, 0, step.content.size()) == step.content;
    const bool wants =
        step.scheme == Scheme::kAlways || (step.scheme == Scheme::kFirst && at_start);
    if (wants && !has_one) MOE_TRY(append(out, step.content));
    for (size_t i = 0; i < text.size();) {
      const size_t space = std::min(text.find(' ', i), text.size());
      MOE_TRY(append(out, slice(text, i, space - i)));
      if (space < text.size()) MOE_TRY(append(out, step.content));
      i = space + 1;
    }
    return {};
  };
  MOE_TRY(rewrite(state, replaced));
  if (!step.flag) return {};
  const uint32_t mark = utf8_next(step.content.data()).code;
  return split_characters(Behavior::kMergedWithNext, state,
                          [mark](uint32_t code) { return code == mark; });
}

Status PreTokenizer::run_step(const Step& step, State& state) {
  switch (step.kind) {
    case Kind::kSplit:
      return split(step, state);
    case Kind::kByteLevel:
      return byte_level(step, state);
    case Kind::kMetaspace:
      return metaspace(step, state);
    case Kind::kDigits:
      return split_characters(step.flag ? Behavior::kIsolated : Behavior::kContiguous, state,
                              is_number);
    case Kind::kPunctuation:
      return split_characters(step.behavior, state, is_punctuation);
    case Kind::kWhitespaceSplit:
      return split_characters(Behavior::kRemoved, state, is_white_space);
    case Kind::kWhitespace:
      break;
  }
  return split_with(Behavior::kRemoved, state, [](std::string_view text, auto& add) -> Status {
    for (size_t i = 0; i < text.size();) {
      const WordClass first = word_class(utf8_next(text.data() + i).code);
      size_t end = i;
      while (end < text.size()) {
        const Utf8Char c = utf8_next(text.data() + end);
        if (word_class(c.code) != first) break;
        end += c.length;
      }
      MOE_TRY(add(i, end, first == WordClass::kSpace));
      i = end;
    }
    return {};
  });
}

}  // namespace moe
