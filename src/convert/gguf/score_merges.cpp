// SPDX-License-Identifier: MIT
// Finds every way to cut a token into two others; each is a merge, and they are sorted by score.
#include "src/convert/gguf/score_merges.h"

#include <algorithm>
#include <string_view>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr size_t kNone = ~size_t{0};
constexpr size_t kStep = 4096;                    // tokens between calls of step()
constexpr size_t kSpareMerges = size_t{1} << 18;  // in addition to four per token
constexpr size_t kMaxBytes = size_t{256} << 20;   // of all merges written out

// For each text its longest proper prefix among the others, or kNone. In sorted order all prefixes
// of a text precede it, and the previous text shares the longest prefix.
std::vector<size_t> beginnings(const std::vector<std::string>& texts,
                               const std::function<void()>& step) {
  std::vector<size_t> order;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) order.push_back(i);
  }
  size_t n_compared = 0;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (++n_compared % kStep == 0) step();
    return texts[a] < texts[b];
  });
  std::vector<size_t> out(texts.size(), kNone);
  std::vector<size_t> open;  // a chain of prefixes
  for (const size_t i : order) {
    while (!open.empty() && !texts[i].starts_with(texts[open.back()])) open.pop_back();
    if (!open.empty()) out[i] = open.back();
    open.push_back(i);
  }
  return out;
}

}  // namespace

std::vector<TokenMerge> merges_of_scores(const std::vector<ScoredToken>& tokens,
                                         const std::function<double(size_t)>& score,
                                         const std::function<void()>& step) {
  const size_t most = 4 * tokens.size() + kSpareMerges;
  std::vector<std::string> texts(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].part) texts[i] = tokens[i].text;
  }
  const std::vector<size_t> lefts = beginnings(texts, step);
  for (std::string& text : texts) std::reverse(text.begin(), text.end());
  const std::vector<size_t> rights = beginnings(texts, step);

  std::vector<TokenMerge> merges;
  size_t n_bytes = 0;
  std::vector<size_t> ends;  // the token's suffixes, shortest last
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i % kStep == 0) step();
    if (!tokens[i].whole) continue;
    const std::string& text = tokens[i].text;
    ends.clear();
    for (size_t r = rights[i]; r != kNone; r = rights[r]) ends.push_back(r);
    for (size_t l = lefts[i]; l != kNone; l = lefts[l]) {
      const size_t cut = texts[l].size();
      while (!ends.empty() && texts[ends.back()].size() < text.size() - cut) ends.pop_back();
      const bool fits = !ends.empty() && texts[ends.back()].size() == text.size() - cut;
      const bool inside_character = (text[cut] & 0xC0) == 0x80;
      if (!fits || inside_character) continue;
      merges.push_back({score(i), l, ends.back()});
      n_bytes += text.size();
      if (merges.size() > most || n_bytes > kMaxBytes) {
        fail(MOE_ERR_FORMAT,
             "tokens can be cut in two in more ways than %zu, or of more than %zu bytes", most,
             kMaxBytes);
      }
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const TokenMerge& a, const TokenMerge& b) { return a.score > b.score; });
  return merges;
}

}  // namespace moe
