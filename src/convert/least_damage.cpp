// SPDX-License-Identifier: MIT
// A knapsack with one option of each part: a search over a few large parts, and for each of its
// cases the prefix of one list of steps of all others.
#include "src/convert/least_damage.h"

#include <algorithm>
#include <optional>

namespace moe {
namespace {

// By bytes, without options that another one makes useless: no larger and no worse.
std::vector<size_t> useful(const SizeOptions& options) {
  std::vector<size_t> order(options.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (options[a].bytes != options[b].bytes) return options[a].bytes < options[b].bytes;
    return options[a].damage < options[b].damage;
  });
  std::vector<size_t> kept;
  for (const size_t i : order) {
    if (kept.empty() || options[i].damage < options[kept.back()].damage) kept.push_back(i);
  }
  return kept;
}

SizeStep step_between(const SizeOptions& options, size_t from, size_t to) {
  return {.option = to,
          .bytes = options[to].bytes - options[from].bytes,
          .gain = options[from].damage - options[to].damage};
}

// The parts that all options of are tried for: those with the widest range of bytes, as many as
// give few cases together.
std::vector<size_t> searched_parts(const std::vector<SizeOptions>& parts,
                                   const std::vector<std::vector<size_t>>& options,
                                   size_t most_cases) {
  const auto range = [&](size_t p) {
    return parts[p][options[p].back()].bytes - parts[p][options[p].front()].bytes;
  };
  std::vector<size_t> order(parts.size());
  for (size_t p = 0; p < order.size(); ++p) order[p] = p;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return range(a) > range(b); });
  size_t n = 0, n_cases = 1;
  while (n < order.size() && options[order[n]].size() <= most_cases / n_cases) {
    n_cases *= options[order[n++]].size();
  }
  order.resize(n);
  return order;
}

class Search {
 public:
  Search(const std::vector<SizeOptions>& parts, uint64_t most_bytes, size_t most_cases)
      : parts_(parts), most_(most_bytes) {
    for (const SizeOptions& options : parts) useful_.push_back(useful(options));
    searched_ = searched_parts(parts_, useful_, most_cases);
    list_steps();
  }

  std::vector<size_t> run() {
    case_.resize(searched_.size());
    try_cases(0, 0, 0);
    std::vector<size_t> out;
    for (const auto& options : useful_) out.push_back(options.front());
    if (!best_) return out;
    for (size_t i = 0; i < searched_.size(); ++i) out[searched_[i]] = best_->options[i];
    for (size_t i = 0; i < best_->n_steps; ++i) out[steps_[i].part] = steps_[i].option;
    return out;
  }

 private:
  struct Found {
    double damage = 0;
    uint64_t bytes = 0;
    std::vector<size_t> options;  // of the searched parts
    size_t n_steps = 0;
  };

  // The steps of the parts that are not searched, and what is there after any number of them.
  void list_steps() {
    std::vector<bool> is_searched(parts_.size());
    for (const size_t p : searched_) is_searched[p] = true;
    uint64_t bytes = 0;
    double damage = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (is_searched[p]) continue;
      bytes += parts_[p][useful_[p].front()].bytes;
      damage += parts_[p][useful_[p].front()].damage;
    }
    steps_ = steps_on_hulls(parts_);
    std::erase_if(steps_, [&](const SizeStep& step) { return is_searched[step.part]; });
    bytes_after_.push_back(bytes);
    damage_after_.push_back(damage);
    for (const SizeStep& step : steps_) {
      bytes_after_.push_back(bytes_after_.back() + step.bytes);
      damage_after_.push_back(damage_after_.back() - step.gain);
    }
  }

  void try_cases(size_t i, uint64_t bytes, double damage) {
    if (bytes > most_ || bytes_after_[0] > most_ - bytes) return;
    if (i < searched_.size()) {
      const size_t p = searched_[i];
      for (const size_t option : useful_[p]) {
        case_[i] = option;
        try_cases(i + 1, bytes + parts_[p][option].bytes, damage + parts_[p][option].damage);
      }
      return;
    }
    const auto beyond = std::upper_bound(bytes_after_.begin(), bytes_after_.end(), most_ - bytes);
    const auto n = static_cast<size_t>(beyond - bytes_after_.begin()) - 1;
    const Found found{damage + damage_after_[n], bytes + bytes_after_[n], {}, n};
    const bool better = !best_ || found.damage < best_->damage ||
                        (found.damage == best_->damage && found.bytes < best_->bytes);
    if (!better) return;
    best_ = found;
    best_->options = case_;
  }

  const std::vector<SizeOptions>& parts_;
  const uint64_t most_;
  std::vector<std::vector<size_t>> useful_;
  std::vector<size_t> searched_;
  std::vector<SizeStep> steps_;
  std::vector<uint64_t> bytes_after_;
  std::vector<double> damage_after_;
  std::vector<size_t> case_;
  std::optional<Found> best_;
};

}  // namespace

std::vector<size_t> convex_hull(const SizeOptions& options) {
  std::vector<size_t> hull;
  for (const size_t i : useful(options)) {
    const auto buys_more = [&] {
      const size_t last = hull.back(), before = hull[hull.size() - 2];
      return step_between(options, last, i).per_byte() >=
             step_between(options, before, last).per_byte();
    };
    while (hull.size() >= 2 && buys_more()) hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

std::vector<SizeStep> steps_on_hulls(const std::vector<SizeOptions>& parts) {
  std::vector<SizeStep> steps;
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::vector<size_t> hull = convex_hull(parts[p]);
    for (size_t i = 1; i < hull.size(); ++i) {
      steps.push_back(step_between(parts[p], hull[i - 1], hull[i]));
      steps.back().part = p;
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const SizeStep& a, const SizeStep& b) {
    return a.per_byte() > b.per_byte();
  });
  return steps;
}

std::vector<size_t> least_damage(const std::vector<SizeOptions>& parts, uint64_t most_bytes,
                                 size_t most_cases) {
  return Search(parts, most_bytes, most_cases).run();
}

}  // namespace moe
