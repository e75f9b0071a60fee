// SPDX-License-Identifier: MIT
// Looks for the latest earlier occurrence of the text's end and proposes what followed it, for as
// long as that is likely to pay.
#include "src/run/draft.h"

#include <algorithm>
#include <iterator>

namespace moe {
namespace {

// By length of the match, measured with SmolLM2's tokens on prose, documentation, Python and C++.
constexpr double kFirstRates[] = {0.15, 0.3, 0.42, 0.55, 0.65, 0.7, 0.72, 0.78};
constexpr double kFirstCost = 0.3;   // 0.1 to 0.2 where a pass reads many weights from memory
constexpr double kRecovery = 0.005;  // after drafts that did not pay, until they are tried again
constexpr size_t kLongestMatch = 16;

struct Match {
  size_t end = 0;  // of the earlier occurrence
  size_t length = 0;
};

// The latest of the longest earlier occurrences of the text's end.
Match find_earlier(std::span<const int32_t> text) {
  Match best;
  const size_t n = text.size();
  for (size_t end = n - 1; end > best.length; --end) {
    size_t length = 0;
    while (length < end && length < kLongestMatch && text[end - 1 - length] == text[n - 1 - length])
      ++length;
    if (length > best.length) best = {end, length};
    if (length == kLongestMatch) break;
  }
  return best;
}

}  // namespace

Drafter::Drafter(size_t most) : most_(most), cost_(kFirstCost) {
  static_assert(std::size(kFirstRates) == kLengths);
  std::copy_n(kFirstRates, kLengths, rates_);
}

size_t Drafter::draft(std::span<const int32_t> text, size_t room, int32_t* out) {
  n_drafted_ = 0;
  room = std::min(room, most_);
  if (room == 0 || text.size() < 2) return 0;
  const Match match = find_earlier(text);
  if (match.length == 0) return 0;
  length_ = match.length;
  double p = rate(0);  // that all drafted tokens so far and the next one are right
  while (p > cost_ && n_drafted_ < room) p *= rate(++n_drafted_);
  if (n_drafted_ == 0) {
    rate(0) += kRecovery * (1 - rate(0));
    cost_ -= kRecovery * cost_;
  }
  // The text behind the occurrence may reach its end, and goes on with the draft.
  for (size_t i = 0; i < n_drafted_; ++i) {
    const size_t at = match.end + i;
    out[i] = at < text.size() ? text[at] : out[at - text.size()];
  }
  return n_drafted_;
}

void Drafter::learn(size_t n_right, double seconds) {
  for (size_t i = 0; i < n_right; ++i) rate(i) += kStep * (1 - rate(i));
  if (n_right < n_drafted_) rate(n_right) -= kStep * rate(n_right);
  if (single_.value <= 0 || n_drafted_ == 0) return;
  const double cost = (seconds / single_.value - 1) / static_cast<double>(n_drafted_);
  cost_ += kStep * (std::clamp(cost, 0.0, 2.0) - cost_);
}

}  // namespace moe
