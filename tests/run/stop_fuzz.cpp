// SPDX-License-Identifier: MIT
// Stop strings and thinking tags in a text that arrives in arbitrary pieces: the results must be
// those of their definitions on the whole text. The first byte selects one of the two.

#include <string>
#include <vector>

#include "src/run/generate.h"
#include "src/run/stop_matcher.h"
#include "src/text/chat/thinking.h"
#include "tests/support/fuzz_bytes.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

/// Splits a text into pieces with cyclically repeated lengths.
class Cutter {
 public:
  explicit Cutter(FuzzBytes& in) {
    const size_t n = 1 + in.below(8);
    for (size_t i = 0; i < n; ++i) lengths_.push_back(in.byte() % 40);
    lengths_.push_back(1);  // so that it ends
  }
  std::vector<std::string> cut(std::string_view text) {
    std::vector<std::string> out;
    while (!text.empty()) {
      const size_t n = std::min(lengths_[next_++ % lengths_.size()], text.size());
      out.emplace_back(slice(text, 0, n));
      text = slice(text, n);
    }
    return out;
  }

 private:
  std::vector<size_t> lengths_;
  size_t next_ = 0;
};

/// The released text by definition: everything before the first complete stop (the longest, if
/// several are complete at once); without one, everything except the longest end that is the start
/// of a stop.
struct Stopped {
  std::string given;
  bool stopped = false;

  Stopped(std::string_view text, const std::vector<std::string>& stops) {
    for (size_t end = 1; end <= text.size() && !stopped; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (slice(text, 0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      }
      stopped = longest != 0;
      given = slice(text, 0, end - longest);
    }
    if (!stopped) given = slice(text, 0, text.size() - held(text, stops));
  }
  static size_t held(std::string_view text, const std::vector<std::string>& stops) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n) {
        if (text.ends_with(slice(stop, 0, n))) longest = n;
      }
    }
    return longest;
  }
};

moe_status code_of(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) return MOE_ERR_RANGE;
  for (const std::string& stop : stops) {
    if (stop.empty()) return MOE_ERR_ARGUMENT;
    if (stop.size() > kMaxStopBytes) return MOE_ERR_RANGE;
    if ((static_cast<uint8_t>(stop[0]) & 0xc0) == 0x80) return MOE_ERR_TEXT;
  }
  return MOE_OK;
}

std::vector<std::string> read_stops(FuzzBytes& in) {
  std::vector<std::string> stops(in.byte() % 8);
  for (std::string& stop : stops) {
    const uint8_t n = in.byte();
    if (n < 240) {
      stop = in.take(n % 32);
    } else if (n < 250) {
      stop.assign(kMaxStopBytes - 5 + (n - 240), 'a');
    } else {
      stops.assign(kMaxStops - 2 + (n - 250), "ab");
      break;
    }
  }
  return stops;
}

void match(FuzzBytes& in) {
  const std::vector<std::string> stops = read_stops(in);
  Cutter cutter(in);
  StopMatcher matcher(system_allocator());
  const std::vector<std::string_view> views(stops.begin(), stops.end());
  const Status status = matcher.init({views.data(), views.size()});
  require(status.code() == code_of(stops));
  if (!status.ok()) return;
  std::string seen;
  std::string given;
  for (const std::string& piece : cutter.cut(in.take(200))) {
    std::string_view ready;
    require(matcher.push(piece, &ready).ok());
    seen += piece;
    given += ready;
    const Stopped expected(seen, stops);
    require(given == expected.given && matcher.stopped() == expected.stopped);
  }
  given += matcher.finish();
  require(matcher.stopped() || given == seen);
  require(given == Stopped(seen, stops).given || !matcher.stopped());
  require(matcher.finish().empty());
}

constexpr const char* kSpecial[] = {"[THINK]",     "[/THINK]",    "<think>",   "</think>",
                                    "<|channel|>", "<|message|>", "<|start|>", "<|end|>"};
constexpr const char* kWords[] = {"<think>", "</think>", "[THINK]",    "[/THINK]",
                                  "final",   "analysis", " ",          "\n",
                                  "<think",  "</",       "<|channel|>"};
constexpr const char* kTemplates[] = {"",
                                      "</think>",
                                      "{{ '<think>' }}",
                                      "[THINK][/THINK]",
                                      "<|channel|><|message|>",
                                      "<seed:think></seed:think>",
                                      "<|START_THINKING|>"};

/// A tokenizer with one letter, and the first `n` of kSpecial as special tokens.
std::unique_ptr<LoadedTokenizer> tokenizer(size_t n) {
  TokenizerData data;
  data.kind = "bpe";
  std::vector<std::string> pieces = {"a"};
  for (size_t i = 0; i < n; ++i) {
    pieces.emplace_back(kSpecial[i]);
    data.added_ids.push_back(static_cast<uint32_t>(i + 1));
    data.added_flags.push_back(kAddedSpecial);
  }
  set_pieces(data, pieces);
  return load(data);
}

const Tokenizer& tokenizer_with(size_t n) {
  static std::unique_ptr<LoadedTokenizer> loaded[std::size(kSpecial) + 1];
  if (loaded[n] == nullptr) loaded[n] = tokenizer(n);
  return *loaded[n]->tokenizer;
}

/// A text, and the special token that follows it.
struct Run {
  std::string text;
  int32_t token = -1;
};

std::vector<Run> read_runs(FuzzBytes& in, size_t n_special) {
  std::vector<Run> runs(1);
  for (size_t n_long = 0; !in.empty();) {
    uint8_t b = in.byte();
    if (b >= 0xC8 && b < 0xD0 && ++n_long > 8)
      b = ' ';  // held-back white space is scanned again with each piece
    if (b >= 0xF0 && n_special != 0) {
      runs.back().token = static_cast<int32_t>(1 + b % n_special);
      runs.emplace_back();
    } else if (b >= 0xD0) {
      runs.back().text += kWords[b % std::size(kWords)];
    } else if (b >= 0xC8) {
      runs.back().text.append(250, b % 2 == 0 ? ' ' : 'x');
    } else {
      runs.back().text += static_cast<char>(b);
    }
  }
  return runs;
}

/// All parts of a reply, concatenated.
struct Parted {
  std::string raw;
  std::string thinking;
  std::string answer;

  void take(std::span<const ReplyPart> parts) {
    for (const ReplyPart& p : parts) {
      raw += p.raw;
      (p.thinking ? thinking : answer) += p.text;
    }
  }
  bool operator==(const Parted&) const = default;
};

/// Splits the runs with the cutter; null: each run is one piece.
Parted split(ReplySplitter& splitter, const std::vector<Run>& runs, Cutter* cutter) {
  Parted out;
  std::span<const ReplyPart> parts;
  for (const Run& run : runs) {
    std::vector<std::string> pieces = {run.text};
    if (cutter != nullptr) pieces = cutter->cut(run.text);
    const size_t with_token =
        pieces.size() - (pieces.size() % 2);  // whether the token comes with the last piece
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool last = i + 1 == pieces.size() && with_token != pieces.size();
      require(splitter.push(last ? run.token : i % 3 == 0 ? -1 : 0, pieces[i], &parts).ok());
      out.take(parts);
    }
    if (with_token == pieces.size()) {
      require(splitter.push(run.token, "", &parts).ok());
      out.take(parts);
    }
  }
  out.take(splitter.finish());
  return out;
}

std::string_view without_space(std::string_view text) {
  while (!text.empty() && (text[0] == ' ' || (text[0] >= '\t' && text[0] <= '\r'))) {
    text = slice(text, 1);
  }
  return text;
}

/// The result for tags that are plain text, by definition.
Parted defined(const ThinkingTags& tags, bool inside, const std::string& text) {
  std::string_view rest = text;
  if (!inside && !without_space(rest).starts_with(tags.open)) return {text, "", text};
  if (!inside) rest = slice(without_space(rest), tags.open.size());
  const size_t at = rest.find(tags.close);
  const std::string_view thought = slice(rest, 0, at);
  const std::string_view answer =
      at == std::string_view::npos ? std::string_view() : slice(rest, at + tags.close.size());
  return {std::string(thought) + std::string(answer), std::string(without_space(thought)),
          std::string(without_space(answer))};
}

void think(FuzzBytes& in) {
  const ThinkingTags tags = thinking_tags(kTemplates[in.below(std::size(kTemplates))]);
  const size_t n_special = in.below(std::size(kSpecial) + 1);
  const bool inside = in.flag();
  Cutter cutter(in);
  const std::vector<Run> runs = read_runs(in, n_special);
  const Tokenizer& t = tokenizer_with(n_special);
  ReplySplitter whole(tags, t, inside, system_allocator());
  ReplySplitter pieces(tags, t, inside, system_allocator());
  const Parted expected = split(whole, runs, nullptr);
  require(split(pieces, runs, &cutter) == expected);
  require(whole.thinking() == pieces.thinking());
  if (tags.channels || t.token_id(tags.close) >= 0) return;
  std::string text;
  for (const Run& run : runs) text += run.text;
  require(expected == defined(tags, inside, text));
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::FuzzBytes in(data, size);
  if (in.flag()) {
    moe::think(in);
  } else {
    moe::match(in);
  }
  return 0;
}
