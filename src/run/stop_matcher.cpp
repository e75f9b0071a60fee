// SPDX-License-Identifier: MIT
// Follows all stop strings at once by the Knuth-Morris-Pratt algorithm.
#include "src/run/stop_matcher.h"

#include "src/run/generate.h"

namespace moe {
namespace {

Status check_stop(std::string_view stop, size_t index) {
  if (stop.empty()) return Status::error(MOE_ERR_ARGUMENT, "stop string %zu is empty", index);
  if (stop.size() > kMaxStopBytes) {
    return Status::error(MOE_ERR_RANGE, "stop string %zu: at most %zu bytes, found %zu", index,
                         kMaxStopBytes, stop.size());
  }
  if ((static_cast<uint8_t>(stop[0]) & 0xc0) == 0x80) {
    return Status::error(MOE_ERR_TEXT, "stop string %zu starts inside a UTF-8 character", index);
  }
  return {};
}

}  // namespace

StopMatcher::StopMatcher(const Allocator& allocator)
    : patterns_(allocator), bytes_(allocator), failure_(allocator), held_(allocator) {}

Status StopMatcher::check(std::span<const std::string_view> stops) {
  if (stops.size() > kMaxStops) {
    return Status::error(MOE_ERR_RANGE, "at most %zu stop strings, found %zu", kMaxStops,
                         stops.size());
  }
  for (size_t i = 0; i < stops.size(); ++i) MOE_TRY(check_stop(stops[i], i));
  return {};
}

Status StopMatcher::init(std::span<const std::string_view> stops) {
  MOE_TRY(check(stops));
  for (const std::string_view stop : stops) {
    Pattern p{bytes_.size(), stop.size(), 0};
    MOE_TRY(bytes_.append(stop.data(), stop.size()));
    // failure_[j]: length of the longest proper prefix that ends the first j + 1 bytes.
    MOE_TRY(failure_.push(0));
    for (size_t j = 1; j < stop.size(); ++j) {
      MOE_TRY(failure_.push(0));
      advance(p, stop[j]);
      failure_[p.begin + j] = static_cast<uint32_t>(p.matched);
    }
    p.matched = 0;
    MOE_TRY(patterns_.push(p));
  }
  return {};
}

void StopMatcher::advance(Pattern& p, char byte) const {
  while (p.matched > 0 && bytes_[p.begin + p.matched] != byte) {
    p.matched = failure_[p.begin + p.matched - 1];
  }
  if (bytes_[p.begin + p.matched] == byte) ++p.matched;
}

Status StopMatcher::push(std::string_view text, std::string_view* ready, bool ends) {
  *ready = {};
  if (stopped()) return {};
  const size_t n_held = held_.size() - n_given_;
  MOE_TRY(held_.reserve(n_held + text.size() > 256 ? 2 * (n_held + text.size()) : 256));
  std::memmove(held_.data(), held_.data() + n_given_, n_held);
  MOE_TRY(held_.resize(n_held));
  MOE_TRY(held_.append(text.data(), text.size()));
  n_given_ = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    size_t length = 0;
    for (size_t j = 0; j < patterns_.size(); ++j) {
      Pattern& p = patterns_[j];
      advance(p, text[i]);
      if (p.matched < p.length || p.length <= length) continue;
      length = p.length;
      found_ = static_cast<int>(j);
    }
    if (length == 0) continue;
    *ready = {held_.data(), n_held + i + 1 - length};
    return {};
  }
  if (ends) {
    for (Pattern& p : patterns_) p.matched = 0;
  }
  size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.matched);
  n_given_ = held_.size() - keep;
  *ready = {held_.data(), n_given_};
  return {};
}

std::string_view StopMatcher::finish() {
  if (stopped() || held_.empty()) return {};
  const std::string_view rest(held_.data() + n_given_, held_.size() - n_given_);
  n_given_ = held_.size();
  return rest;
}

}  // namespace moe
