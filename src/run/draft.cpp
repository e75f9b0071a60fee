// SPDX-License-Identifier: MIT
// Looks for the latest earlier occurrence of the text's end and proposes what followed it, or what
// a guesser says, for as long as that is likely to pay.
#include "src/run/draft.h"

#include <algorithm>
#include <iterator>

namespace moe {
namespace {

// By length of the match, measured with SmolLM2's tokens on prose, documentation, Python and C++.
constexpr double kFirstRates[] = {0.15, 0.3, 0.42, 0.55, 0.65, 0.7, 0.72, 0.78};
constexpr double kFirstCost = 0.3;  // 0.1 to 0.2 where a pass reads many weights from memory
// Assumed of guesses, and replaced by what is measured.
constexpr double kFirstGuessRates[] = {0.8, 0.65, 0.55, 0.5, 0.45, 0.4, 0.4, 0.4};
constexpr double kFirstGuessCost = 0.1;
constexpr double kMostLoss = 0.02;   // by guesses, as a share of all passes
constexpr double kAllowance = 2;     // passes that they may lose besides
constexpr int32_t kMeasured = 64;    // passes with guesses until one without measures again
constexpr double kMostCost = 2;      // of a token, in passes: a measurement may be disturbed
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

Drafter::Drafter(size_t most) : most_(most), cost_(kFirstCost), guess_cost_(kFirstGuessCost) {
  static_assert(std::size(kFirstRates) == kLengths && std::size(kFirstGuessRates) == kLengths);
  std::copy_n(kFirstRates, kLengths, rates_);
  std::copy_n(kFirstGuessRates, kLengths, guess_rates_);
}

// Each token is worth the probability that it and those before it are right.
template <class Rate>
Drafter::Plan Drafter::plan(Rate rate_of, double cost, size_t room) {
  Plan plan;
  double p = rate_of(0);
  while (p > cost && plan.n < room) {
    plan.gain += p - cost;
    p *= rate_of(++plan.n);
  }
  return plan;
}

bool Drafter::may_lose() const { return lost_ < kAllowance + kMostLoss * n_tokens_; }

// Costs are relative to a pass without a draft, which must have been measured.
Drafter::Plan Drafter::plan_guesses(size_t room) {
  if (single_.value <= 0 || since_single_ >= kMeasured || !may_lose()) return {};
  const Plan plan =
      this->plan([this](size_t i) { return guess_rate(i); }, cost_ + guess_cost_, room);
  if (plan.n == 0 && room > 0) {
    guess_rate(0) += kRecovery * (1 - guess_rate(0));
    guess_cost_ -= kRecovery * guess_cost_;
  }
  return plan;
}

size_t Drafter::draft(std::span<const int32_t> text, size_t room, int32_t* out,
                      const Guesser* guesser) {
  n_drafted_ = 0;
  guessed_ = false;
  room = std::min(room, most_);
  if (room == 0) return 0;
  Match match;
  if (text.size() >= 2) match = find_earlier(text);
  Plan found;
  if (match.length > 0) {
    length_ = match.length;
    found = plan([this](size_t i) { return rate(i); }, cost_, room);
    if (found.n == 0) {
      rate(0) += kRecovery * (1 - rate(0));
      cost_ -= kRecovery * cost_;
    }
  }
  const Plan guess = guesser == nullptr ? Plan() : plan_guesses(room);
  if (guess.n > 0 && guess.gain > found.gain) {
    guess_seconds_ = 0;
    n_drafted_ = guesser->guess(guesser->user, guess.n, out, &guess_seconds_);
    guessed_ = n_drafted_ > 0;
    if (guessed_) return n_drafted_;
    learn_failure();
  }
  n_drafted_ = found.n;
  // The text behind the occurrence may reach its end, and goes on with the draft.
  for (size_t i = 0; i < n_drafted_; ++i) {
    const size_t at = match.end + i;
    out[i] = at < text.size() ? text[at] : out[at - text.size()];
  }
  return n_drafted_;
}

void Drafter::learn(size_t n_right, double seconds) {
  n_tokens_ += 1 + static_cast<double>(n_right);
  const auto learn_rate = [&](auto&& rate_of) {
    for (size_t i = 0; i < n_right; ++i) rate_of(i) += kStep * (1 - rate_of(i));
    if (n_right < n_drafted_) rate_of(n_right) -= kStep * rate_of(n_right);
  };
  if (guessed_) {
    learn_rate([this](size_t i) -> double& { return guess_rate(i); });
  } else {
    learn_rate([this](size_t i) -> double& { return rate(i); });
  }
  if (single_.value <= 0 || n_drafted_ == 0) return;
  const double n = static_cast<double>(n_drafted_);
  const double cost = (seconds / single_.value - 1) / n;
  cost_ += kStep * (std::clamp(cost, 0.0, kMostCost) - cost_);
  if (guessed_) learn_guesses(n_right, seconds);
}

// Without guesses, which a damaged layer never gives, all of the time is lost. It counts as a part
// of a pass at least: a clock that the caller replaced may stand still.
void Drafter::learn_failure() {
  guess_rate(0) -= kStep * guess_rate(0);
  lost_ += std::clamp(guess_seconds_ / single_.value, kMostLoss, kMostCost);
}

// However much was gained, no more than the allowance may be lost later.
void Drafter::learn_guesses(size_t n_right, double seconds) {
  ++since_single_;
  const double most = kMostCost * static_cast<double>(n_drafted_);
  const double guessing = std::min(guess_seconds_ / single_.value, most);
  guess_cost_ += kStep * (guessing / static_cast<double>(n_drafted_) - guess_cost_);
  const double checking = std::min(seconds / single_.value - 1, most);
  lost_ += guessing + checking - static_cast<double>(n_right);
  lost_ = std::max(lost_, -kAllowance);
}

}  // namespace moe
