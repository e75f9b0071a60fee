// SPDX-License-Identifier: MIT
#include "src/text/chat/thinking.h"

#include <gtest/gtest.h>

#include "tests/support/failing_allocator.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

/// A tokenizer with a letter, tags that are special tokens, and the markers of channels.
TokenizerData tagged() {
  TokenizerData data;
  data.kind = "bpe";
  set_pieces(data,
             {"a", "[THINK]", "[/THINK]", "<|channel|>", "<|message|>", "<|start|>", "<|end|>"});
  data.added_ids = {1, 2, 3, 4, 5, 6};
  data.added_flags = std::vector<uint8_t>(6, kAddedSpecial);
  return data;
}

/// The parts of a reply as "(thinking)answer", without white space after a tag.
struct Parted {
  std::string shown;
  std::string raw;
  bool inside = false;

  void take(std::span<const ReplyPart> parts) {
    for (const ReplyPart& p : parts) {
      raw += p.raw;
      if (p.text.empty()) continue;
      if (p.thinking != inside) shown += p.thinking ? "(" : ")";
      inside = p.thinking;
      shown += p.text;
    }
  }
};

struct TokenPiece {
  int32_t token;
  std::string text;
};

Parted parted(const ThinkingTags& tags, const std::vector<TokenPiece>& pieces,
              bool inside = false) {
  const auto loaded = load(tagged());
  check(loaded->status);
  ReplySplitter splitter(tags, *loaded->tokenizer, inside, system_allocator());
  Parted out;
  for (const TokenPiece& p : pieces) {
    std::span<const ReplyPart> parts;
    check(splitter.push(p.token, p.text, &parts));
    out.take(parts);
  }
  out.take(splitter.finish());
  return out;
}

std::vector<TokenPiece> cut(const std::string& text, size_t n) {
  std::vector<TokenPiece> out;
  for (size_t i = 0; i < text.size(); i += n) out.push_back({0, text.substr(i, n)});
  return out;
}

// A grammar allows this token before an answer, so it must be one that opens the thinking.
TEST(Thinking, TheTokenThatOpensIt) {
  const auto opening = [](uint8_t flags_of_open, uint8_t flags_of_close) {
    TokenizerData data = tagged();
    data.added_flags[0] = flags_of_open;
    data.added_flags[1] = flags_of_close;
    const auto loaded = load(data);
    check(loaded->status);
    ThinkingTags tags;
    tags.open = "[THINK]";
    tags.close = "[/THINK]";
    return ReplySplitter(tags, *loaded->tokenizer, false, system_allocator()).opening();
  };
  EXPECT_EQ(opening(kAddedSpecial, kAddedSpecial), 1);
  EXPECT_EQ(opening(0, 0), 1);
  EXPECT_EQ(opening(0, kAddedSpecial), -1);  // its text opens nothing
}

TEST(Thinking, TagsInTextHoweverItIsCut) {
  const std::pair<const char*, const char*> kCases[] = {
      {"<think>why</think>so", "(why)so"},
      {"\n <think>\nwhy\n</think>\n\nso\n", "(why\n)so\n"},
      {"<think></think>so", "so"},
      {"<think>\n\n</think>\n\nso", "so"},
      {"<think>never ends </thin", "(never ends </thin"},
      {"<think>a</think", "(a</think"},
      {"<think>a </ think> </think>b</think>c", "(a </ think> )b</think>c"},
      {"so <think>not this</think>", "so <think>not this</think>"},
      {"<thin ice", "<thin ice"},
      {"<thinker>", "<thinker>"},
      {"  <", "  <"},
      {"  so", "  so"},
      {"", ""}};
  for (const auto& [text, expected] : kCases) {
    for (const size_t n : {1U, 2U, 3U, 7U, 100U}) {
      EXPECT_EQ(parted({}, cut(text, n)).shown, expected) << text << " by " << n;
    }
  }
}

TEST(Thinking, NothingIsLostButTheTags) {
  const Parted p = parted({}, cut(" <think>\n why\n</think>\n\n so ", 4));
  EXPECT_EQ(p.raw, "\n why\n\n\n so ");
  EXPECT_EQ(p.shown, "(why\n)so ");
}

TEST(Thinking, ThinkingBegunByTheTemplate) {
  EXPECT_EQ(parted({}, cut("\nwhy</think>\n\nso", 5), true).shown, "(why)so");
  EXPECT_EQ(parted({}, cut("why", 1), true).shown, "(why");
}

TEST(Thinking, TagsThatAreSpecialTokens) {
  const ThinkingTags tags = thinking_tags("{{ '[THINK]' }}{{ '[/THINK]' }}");
  EXPECT_TRUE(tags.named);
  EXPECT_EQ(parted(tags, {{1, ""}, {0, "why"}, {2, "!"}, {0, " so"}}).shown, "(why!)so");
  EXPECT_EQ(parted(tags, {{0, " "}, {1, ""}, {0, "why"}}).shown, "(why");
  // A tag that is spelled out is text, and so is a tag token in the middle of an answer.
  EXPECT_EQ(parted(tags, {{0, "[THINK]x"}, {1, ""}, {0, "y"}}).shown, "[THINK]xy");
}

TEST(Thinking, Channels) {
  const ThinkingTags tags = thinking_tags("<|channel|>final<|message|>");
  EXPECT_TRUE(tags.channels);
  const std::vector<TokenPiece> pieces = {
      {3, ""},          {0, "analysis"}, {4, ""},      {0, "why"}, {6, ""},  {5, ""},
      {0, "assistant"}, {3, ""},         {0, "final"}, {4, ""},    {0, "so"}};
  EXPECT_EQ(parted(tags, pieces).shown, "(why)so");
  EXPECT_EQ(parted(tags, {{0, "at once"}}).shown, "at once");
  EXPECT_EQ(parted(tags, {{3, ""}, {0, "final"}, {4, ""}, {0, "so"}}).shown, "so");
  // With any amount of white space before the channel's name, in any pieces.
  const std::string space(300, ' ');
  EXPECT_EQ(parted(tags, {{3, ""}, {0, space}, {0, "final"}, {4, ""}, {0, "so"}}).shown, "so");
  EXPECT_EQ(parted(tags, {{3, ""}, {0, space + "final"}, {4, ""}, {0, "so"}}).shown, "so");
}

TEST(Thinking, TagsOfTemplates) {
  EXPECT_EQ(thinking_tags("no tags").open, "<think>");
  EXPECT_FALSE(thinking_tags("no tags").named);
  EXPECT_TRUE(thinking_tags("{{ c.split('</think>')[-1] }}").named);
  EXPECT_FALSE(thinking_tags("{{ '<think>' }}").named);
  EXPECT_EQ(thinking_tags("</thought>").close, "</thought>");
}

TEST(Thinking, EveryAllocationMayFail) {
  const auto loaded = load(tagged());
  bool done = false;
  for (size_t n = 0; n < 50 && !done; ++n) {
    FailingAllocator failing(n);
    ReplySplitter splitter({}, *loaded->tokenizer, false, failing.get());
    Status status;
    for (const TokenPiece& p : cut("<think>why</think>" + std::string(500, 'x'), 9)) {
      std::span<const ReplyPart> parts;
      status = splitter.push(p.token, p.text, &parts);
      if (!status.ok()) break;
    }
    EXPECT_TRUE(status.ok() || status.code() == MOE_ERR_MEMORY) << status.text();
    done = status.ok();
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace moe
