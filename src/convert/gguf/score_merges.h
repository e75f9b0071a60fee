#pragma once
// The merges that SentencePiece's scores stand for.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace moe {

struct ScoredToken {
  std::string text;
  bool part = false;   // may be the left or right of a merge
  bool whole = false;  // may be what a merge gives
};

struct TokenMerge {
  double score;  // of the whole
  size_t left, right;
};

/// Every way to cut a token between two characters into two others, the best score of the whole
/// first, then by token, then the longest left part first. The time is that of sorting the tokens.
/// score(i) is asked for wholes that can be cut, and may throw. step() is called now and then and
/// may throw. Throws MOE_ERR_FORMAT where tokens are made to be cut in so many ways that the merges
/// outgrow any real vocabulary's.
std::vector<TokenMerge> merges_of_scores(const std::vector<ScoredToken>& tokens,
                                         const std::function<double(size_t)>& score,
                                         const std::function<void()>& step);

}  // namespace moe
