// SPDX-License-Identifier: MIT
#pragma once
// Derives merges from SentencePiece's scores.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moe {

struct ScoredToken {
  std::string text;
  bool part = false;   // may be the left or right part of a merge
  bool whole = false;  // may be the result of a merge
};

struct TokenMerge {
  double score;  // of the result
  size_t left, right;
};

/// Every split of a token into two others at a character boundary, ordered by best score of the
/// whole, then by token, then by longest left part. Takes as long as sorting the tokens. score(i)
/// is called for wholes that can be split, and may throw. step() is called from time to time and
/// may throw. Throws MOE_ERR_FORMAT if tokens can be split in so many ways that the merges exceed
/// any real vocabulary's.
std::vector<TokenMerge> merges_of_scores(const std::vector<ScoredToken>& tokens,
                                         const std::function<double(size_t)>& score,
                                         const std::function<void()>& step);

}  // namespace moe
