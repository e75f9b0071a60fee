// SPDX-License-Identifier: MIT
// Runs the source model over a text, several times if memory has no room for all moments at once,
// and adds up what enters each matrix.
#include "src/convert/calibration/calibrate.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "kernels/cpu/table.h"

namespace moe {
namespace {

// Accumulates inputs per matrix.
class InputWatch final : public InputWatcher {
 public:
  explicit InputWatch(ThreadPool& pool) : pool_(pool) {}

  /// `place`: the Matrix itself, or its tiles if those stay while it is copied.
  void add(const void* place, std::shared_ptr<InputSums> sums) {
    panel_.resize(std::max(panel_.size(), SecondMoments::panel_size(sums->n_inputs)));
    sums_[place] = std::move(sums);
  }
  /// Squares and tokens are final from now on.
  void keep_squares() { squares_ = false; }

  void see(const Matrix& weight, const LinearInput& input) override {
    auto found = sums_.find(&weight);
    if (found == sums_.end()) found = sums_.find(weight.tiles);
    if (found == sums_.end()) return;
    InputSums& sums = *found->second;
    if (squares_) add_squares(input, &sums);
    if (sums.moments == nullptr) return;
    sums.moments->add(input.x, input.ld_x, input.row_ids, input.n_rows, panel_.data(), pool_);
  }

 private:
  static void add_squares(const LinearInput& input, InputSums* sums) {
    sums->n_tokens += static_cast<uint64_t>(input.n_rows);
    for (int32_t i = 0; i < input.n_rows; ++i) {
      const int32_t row = input.row_ids != nullptr ? input.row_ids[i] : i;
      const float* x = input.x + row * input.ld_x;
      double* out = sums->squares.data();
      for (int32_t c = 0; c < input.n_cols; ++c) out[c] += double{x[c]} * double{x[c]};
    }
  }

  ThreadPool& pool_;
  bool squares_ = true;
  std::unordered_map<const void*, std::shared_ptr<InputSums>> sums_;
  std::vector<double> panel_;
};

class TextCalibration final : public Calibration {
 public:
  TextCalibration(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
                  ThreadPool& pool, CalibrationOptions options)
      : Calibration(pool), options_(std::move(options)), text_(text), plan_(plan) {
    model_.emplace(file, n_bytes, options_.model_bytes, pool_, watch_);
    run_.text.n_tokens = text.tokens.size();
    for (const PlannedSegment& segment : plan.segments) {  // may read every expert
      if (options_.progress && !options_.progress(0, text.tokens.size())) {
        fail(MOE_ERR_CANCELLED, "cancelled");
      }
      find_sums(segment);
    }
    room_ = options_.moment_bytes != 0 ? options_.moment_bytes : machine_share();
    wanted_ = keys_of(options_.with_moments, plan, model_->config());
    collected_ = options_.save != nullptr ? all_keys() : wanted_;
    begin_group(0);
    run_.text.perplexity = read();
    watch_.keep_squares();
    for (auto& [name, sums] : sums_) sums->finish();
    count_experts(plan, model_->config().n_main_layers());
    if (options_.save != nullptr) {
      options_.save->put_inputs(
          [this](const std::string& key) -> const InputSums& { return *sums_.at(key); });
    }
    finish_group();
  }

  void prepare(size_t segment) override {
    if (segment < first_) {
      ++round_;
      read_group(0);
    }
    while (segment >= end_) read_group(end_);
  }

 private:
  void find_sums(const PlannedSegment& segment) {
    model_->each_matrix(segment, [&](const void* place, const Slot& slot, const std::string& key) {
      std::shared_ptr<InputSums>& sums = sums_[key];
      const std::string name = slot.short_name();
      if (sums == nullptr) {
        sums = std::make_shared<InputSums>();
        sums->n_inputs = slot.cols;
        sums->squares.resize(static_cast<size_t>(slot.cols));
      }
      inputs_.put(name, sums);
      if (name == key) watch_.add(place, sums);
    });
  }

  std::set<std::string> all_keys() const {
    std::set<std::string> names;
    for (const auto& [key, sums] : sums_) names.insert(key);
    return keys_of(names, plan_, model_->config());
  }

  // Calls f for the sums of a segment that will have moments, their key, and their average's name.
  template <class F>
  void each_collected(const PlannedSegment& segment, F&& f) {
    for (const PlannedMatrix& m : segment.matrices) {
      if (!is_product(m.slot)) continue;
      const auto found = collected_.find(m.slot.short_name());
      if (found != collected_.end()) f(*sums_[*found], *found, average_of(segment, m.slot));
    }
  }

  uint64_t moment_bytes(size_t begin, size_t end) {
    uint64_t bytes = 0;
    std::set<std::string> averages;
    for (size_t i = begin; i < end; ++i) {
      each_collected(plan_.segments[i],
                     [&](const InputSums& sums, const std::string&, const std::string& average) {
                       bytes += SecondMoments::bytes(sums.n_inputs);
                       if (!average.empty() && averages.insert(average).second) {
                         bytes += SecondMoments::bytes(sums.n_inputs);
                       }
                     });
    }
    return bytes;
  }

  // Allocates moments for as many layers from `begin` on as fit. A single layer that does not fit
  // uses only mean squares.
  void begin_group(size_t begin) {
    inputs_.forget_feedback();
    for (auto& [name, sums] : sums_) {
      sums->moments = nullptr;
      sums->average = nullptr;
    }
    uint64_t used = 0;
    any_moments_ = false;
    first_ = end_ = begin;
    while (end_ < plan_.segments.size()) {
      const size_t next = end_of_layer(plan_, end_);
      const uint64_t bytes = moment_bytes(end_, next);
      if (used + bytes > room_ && (any_moments_ || bytes <= room_)) return;
      if (bytes <= room_) {
        for (size_t i = end_; i < next; ++i) add_moments(plan_.segments[i]);
        used += bytes;
      } else {
        if (end_ >= reached_) run_.n_without_room += wants_moments(end_, next) ? 1u : 0u;
      }
      end_ = next;
    }
  }

  void add_moments(const PlannedSegment& segment) {
    each_collected(segment, [&](InputSums& sums, const std::string&, const std::string&) {
      sums.moments = std::make_unique<SecondMoments>(sums.n_inputs);
      any_moments_ = true;
    });
  }

  bool wants_moments(size_t begin, size_t end) {
    bool wants = false;
    for (size_t i = begin; i < end; ++i) {
      each_collected(plan_.segments[i],
                     [&](const InputSums&, const std::string& key, const std::string&) {
                       wants |= wanted_.contains(key);
                     });
    }
    return wants;
  }

  void read_group(size_t begin) {
    begin_group(begin);
    if (any_moments_) (void)read();
    finish_group();
  }

  double read() {
    ++run_.n_passes;
    return model_->read_text(text_, options_.progress);
  }

  // Rounds and saves the moments of a group, and averages those of the experts that need them.
  // Frees the model after the last pass.
  void finish_group() {
    StatisticsWriter* const save = first_ >= reached_ ? options_.save : nullptr;
    Averages averages;
    for (size_t i = first_; i < end_; ++i) {
      each_collected(plan_.segments[i],
                     [&](InputSums& sums, const std::string& key, const std::string& average) {
                       if (sums.moments == nullptr) return;
                       sums.moments->round();
                       if (save != nullptr && sums.n_tokens > 0) {
                         save->put_moments(key, *sums.moments);
                       }
                       if (average.empty() || !wanted_.contains(key)) return;
                       add_to_average(*sums.moments, &averages[average]);
                       sums.average = averages[average];
                     });
    }
    reached_ = std::max(reached_, end_);
    if (end_ != plan_.segments.size()) return;
    if (save != nullptr) save->finish(run_.text);
    if (first_ == 0 || round_ + 1 >= options_.n_rounds) model_.reset();
  }

  const CalibrationOptions options_;
  const CalibrationText& text_;
  const Plan& plan_;
  InputWatch watch_{pool_};
  std::optional<SourceModel> model_;
  std::map<std::string, std::shared_ptr<InputSums>> sums_;
  std::set<std::string> wanted_;     // keys of moments that are used
  std::set<std::string> collected_;  // and those that are only saved
  // Segments with moments.
  size_t first_ = 0;
  size_t end_ = 0;
  bool any_moments_ = false;
  uint64_t room_ = 0;   // bytes for second moments
  int32_t round_ = 0;   // of prepare() through the segments
  size_t reached_ = 0;  // end of the segments that had their moments in any round
};

}  // namespace

void Calibration::count_experts(const Plan& plan, int32_t n_layers) {
  for (const PlannedSegment& segment : plan.segments) {
    if (segment.part != Part::kExperts || segment.layer >= n_layers) continue;
    ++run_.n_experts;
    bool reached = false;
    for (const PlannedMatrix& m : segment.matrices) {
      reached |= inputs_.n_tokens(m.slot.short_name()) > 0;
    }
    run_.n_unreached += reached ? 0u : 1u;
  }
}

std::unique_ptr<Calibration> calibrate_on_text(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                                               const CalibrationText& text, ThreadPool& pool,
                                               CalibrationOptions options) {
  return std::make_unique<TextCalibration>(file, n_bytes, plan, text, pool, std::move(options));
}

}  // namespace moe
