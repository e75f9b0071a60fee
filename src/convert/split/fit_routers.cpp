// SPDX-License-Identifier: MIT
// Runs the model over a text, adds up inputs and activations, and solves a least-squares problem
// per layer.
#include "src/convert/split/fit_routers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>

#include "formats/import/failure.h"
#include "kernels/cpu/table.h"
#include "src/convert/calibration/cholesky.h"
#include "src/convert/calibration/second_moments.h"

namespace moe {
namespace {

constexpr double kRidge = 1e-3;        // relative to the mean input variance
constexpr double kRounding = 0x1p-20;  // relative differences below this are rounding
constexpr double kFloor = 0.05;        // added to shares, whose mean is 1, before the logarithm

using Vector = std::vector<double>;

const float* row_of(const LinearInput& input, int32_t i) {
  return input.x + (input.row_ids != nullptr ? input.row_ids[i] : i) * input.ld_x;
}

// Sums over tokens of one layer's inputs x, targets y, and x y.
class LayerSums {
 public:
  LayerSums(const NeuronGroups& groups, int32_t d)
      : groups_(groups),
        d_(d),
        moments_(d, d),
        panel_(SecondMoments::panel_size(d)),
        inputs_(static_cast<size_t>(kWindow) * static_cast<size_t>(d)),
        x_sums_(static_cast<size_t>(d)),
        y_(static_cast<size_t>(groups.n_groups)),
        y_sums_(y_.size()),
        y_squares_(y_.size()),
        xy_(y_.size() * x_sums_.size()) {}

  static uint64_t bytes(int32_t d, int32_t n_groups) {
    return covariance_bytes(d) + sizeof(float) * static_cast<uint64_t>(d) * kWindow +
           sizeof(double) * static_cast<uint64_t>(d) * (static_cast<uint64_t>(n_groups) + 18);
  }
  /// Temporary memory of fit().
  static uint64_t covariance_bytes(int32_t d) { return SecondMoments::bytes(d, d); }

  // Called by the core, so it must not throw: it allocates nothing.
  void see_inputs(const LinearInput& input, ThreadPool& pool) {
    moments_.add(input.x, input.ld_x, input.row_ids, input.n_rows, panel_.data(), pool);
    float* out = inputs_.data();
    for (int32_t i = 0; i < input.n_rows; ++i) out = std::copy_n(row_of(input, i), d_, out);
  }

  /// For the most recent inputs.
  void see_activations(const LinearInput& input) {
    for (int32_t i = 0; i < input.n_rows; ++i) {
      find_target(row_of(input, i));
      add(inputs_.data() + static_cast<size_t>(i) * x_sums_.size());
    }
  }

  FittedRouter fit(ThreadPool& pool, const std::function<void()>& look) const;

 private:
  // If no neuron is active, all shares are equal.
  void find_target(const float* activations) {
    std::fill(y_.begin(), y_.end(), 0.0);
    double total = 0;
    for (size_t i = 0; i < groups_.group.size(); ++i) {
      const double square = double{activations[i]} * double{activations[i]};
      y_[static_cast<size_t>(groups_.group[i])] += square;
      total += square;
    }
    for (double& v : y_) v = std::log((total > 0 ? v / total * groups_.n_groups : 1) + kFloor);
  }

  void add(const float* x) {
    ++n_;
    for (size_t i = 0; i < x_sums_.size(); ++i) x_sums_[i] += double{x[i]};
    for (size_t g = 0; g < y_.size(); ++g) {
      y_sums_[g] += y_[g];
      y_squares_[g] += y_[g] * y_[g];
      double* out = xy_.data() + g * x_sums_.size();
      for (size_t i = 0; i < x_sums_.size(); ++i) out[i] += y_[g] * double{x[i]};
    }
  }

  // The lower triangle of the inputs' covariance, and the ridge for its diagonal: 0 if the inputs
  // vary only by rounding.
  Vector covariance(double* ridge) const {
    const double n = static_cast<double>(n_);
    Vector out;
    out.reserve(covariance_bytes(d_) / sizeof(double));
    double diagonal = 0;
    double squares = 0;
    for (int32_t i = 0; i < d_; ++i) {
      const double mean = x_sums_[static_cast<size_t>(i)] / n;
      for (int32_t j = 0; j <= i; ++j) {
        out.push_back(moments_.at(i, j) / n - mean * x_sums_[static_cast<size_t>(j)] / n);
      }
      diagonal += out.back();
      squares += moments_.at(i, i) / n;
    }
    *ridge = diagonal > kRounding * kRounding * squares ? kRidge * diagonal / d_ : 0;
    for (size_t i = 0, at = 0; i < x_sums_.size(); ++i, at += i + 1) out[at] += *ridge;
    return out;
  }

  // The covariance of the inputs with one target.
  Vector covariance_with(size_t g) const {
    const double n = static_cast<double>(n_);
    Vector out(x_sums_.size());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = (xy_[g * out.size() + i] - y_sums_[g] * x_sums_[i] / n) / n;
    }
    return out;
  }

  double variance(size_t g) const {
    const double mean = y_sums_[g] / static_cast<double>(n_);
    return y_squares_[g] / static_cast<double>(n_) - mean * mean;
  }

  const NeuronGroups& groups_;
  int32_t d_;
  SecondMoments moments_;
  Vector panel_;
  std::vector<float> inputs_;  // (kWindow, d), the most recent
  uint64_t n_ = 0;
  Vector x_sums_;
  Vector y_, y_sums_, y_squares_;  // y_: of the current token
  Vector xy_;                      // (n_groups, d)
};

// x = (L L^T)^-1 x, L by rows.
void solve(const Vector& factor, Vector* x) {
  const size_t n = x->size();
  const auto entry = [&](size_t i, size_t j) { return factor[i * (i + 1) / 2 + j]; };
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) (*x)[i] -= entry(i, j) * (*x)[j];
    (*x)[i] /= entry(i, i);
  }
  for (size_t i = n; i-- > 0;) {
    (*x)[i] /= entry(i, i);
    for (size_t j = 0; j < i; ++j) (*x)[j] -= entry(i, j) * (*x)[i];
  }
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// If the inputs are constant, the scores are the targets' means.
FittedRouter LayerSums::fit(ThreadPool& pool, const std::function<void()>& look) const {
  FittedRouter out;
  double ridge = 0;
  Vector factor = covariance(&ridge);
  const bool known = ridge > 0 && cholesky(d_, factor.data(), pool);
  double all = 0;
  double explained = 0;
  for (size_t g = 0; g < y_sums_.size(); ++g) {
    look();
    Vector w(x_sums_.size());
    if (known) {
      const Vector c = covariance_with(g);
      w = c;
      solve(factor, &w);
      explained += dot(w, c) + ridge * dot(w, w);
    }
    all += variance(g);
    out.weight.insert(out.weight.end(), w.begin(), w.end());
    out.bias.push_back(
        static_cast<float>((y_sums_[g] - dot(w, x_sums_)) / static_cast<double>(n_)));
  }
  out.explained = all > 0 ? std::clamp(explained / all, 0.0, 1.0) : 0;
  return out;
}

// The layers of one pass over the text.
class LayerWatch final : public InputWatcher {
 public:
  explicit LayerWatch(ThreadPool& pool) : pool_(pool) {}

  void clear() {
    by_inputs_.clear();
    by_activations_.clear();
  }
  /// Registers a layer by the tiles of its matrices.
  void add(const void* up, const void* down, LayerSums& sums) {
    by_inputs_[up] = &sums;
    by_activations_[down] = &sums;
  }
  void see(const Matrix& weight, const LinearInput& input) override {
    if (const auto found = by_inputs_.find(weight.tiles); found != by_inputs_.end()) {
      found->second->see_inputs(input, pool_);
    }
    if (const auto found = by_activations_.find(weight.tiles); found != by_activations_.end()) {
      found->second->see_activations(input);
    }
  }

 private:
  ThreadPool& pool_;
  std::unordered_map<const void*, LayerSums*> by_inputs_, by_activations_;
};

class RouterFitter {
 public:
  RouterFitter(ModelSink& file, uint64_t n_bytes, const Plan& plan,
               const std::vector<NeuronGroups>& layers, ThreadPool& pool)
      : pool_(pool), layers_(layers), watch_(pool), model_(file, n_bytes, 0, pool, watch_) {
    for (const PlannedSegment& segment : plan.segments) find_places(segment);
  }

  RouterFits fit(const CalibrationText& text, uint64_t room, const std::function<void()>& look,
                 const ReadingProgress& progress) {
    RouterFits out;
    for (size_t next = 0; next < layers_.size();) {
      next = begin_pass(next, room != 0 ? room : machine_share());
      out.perplexity = model_.read_text(text, progress);
      ++out.n_passes;
      for (const auto& sums : sums_) out.routers.push_back(sums->fit(pool_, look));
    }
    return out;
  }

 private:
  struct Places {
    const void* up = nullptr;
    const void* down = nullptr;
    int32_t d = 0;
  };

  void find_places(const PlannedSegment& segment) {
    if (segment.part != Part::kFfn) return;
    Places& places = places_[segment.layer];
    model_.each_matrix(segment, [&](const void* place, const Slot& slot, const std::string&) {
      if (slot.role == Role::kUp) places.up = place, places.d = slot.cols;
      if (slot.role == Role::kDown) places.down = place;
    });
  }

  // Begins a pass with as many layers as fit; returns their end.
  size_t begin_pass(size_t begin, uint64_t room) {
    watch_.clear();
    sums_.clear();
    uint64_t used = LayerSums::covariance_bytes(places_.at(layers_[begin].layer).d);
    size_t next = begin;
    for (; next < layers_.size(); ++next) {
      const NeuronGroups& groups = layers_[next];
      const Places& places = places_.at(groups.layer);
      used += LayerSums::bytes(places.d, groups.n_groups);
      if (next > begin && used > room) break;
      sums_.push_back(std::make_unique<LayerSums>(groups, places.d));
      watch_.add(places.up, places.down, *sums_.back());
    }
    return next;
  }

  ThreadPool& pool_;
  const std::vector<NeuronGroups>& layers_;
  LayerWatch watch_;
  SourceModel model_;
  std::unordered_map<int32_t, Places> places_;
  std::vector<std::unique_ptr<LayerSums>> sums_;
};

}  // namespace

RouterFits fit_routers(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                       const CalibrationText& text, const std::vector<NeuronGroups>& layers,
                       uint64_t room, ThreadPool& pool, const std::function<void()>& look,
                       const ReadingProgress& progress) {
  return RouterFitter(file, n_bytes, plan, layers, pool).fit(text, room, look, progress);
}

}  // namespace moe
