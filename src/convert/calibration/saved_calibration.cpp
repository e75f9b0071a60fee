// SPDX-License-Identifier: MIT
// Takes the statistics of each segment from a file instead of running the model.
#include "src/convert/calibration/calibrate.h"

namespace moe {
namespace {

class SavedCalibration final : public Calibration {
 public:
  SavedCalibration(const StatisticsFile& file, const Plan& plan, const ModelConfig& config,
                   const std::set<std::string>& with_moments, ThreadPool& pool)
      : Calibration(pool), file_(file), plan_(plan), wanted_(keys_of(with_moments, plan, config)) {
    for (const InputKey& input : file.inputs()) sums_[input.name] = file.sums(input);
    for (const PlannedSegment& segment : plan.segments) {
      each_product(segment, config, [&](const Slot& slot, const std::string& key) {
        inputs_.put(slot.short_name(), sums_.at(key));
      });
    }
    run_.text = file.text();
    count_experts(plan, config.n_main_layers());
    for (size_t i = 0; i < plan.segments.size(); i = end_of_layer(plan, i)) {
      run_.n_without_room += lacks_moments(i, end_of_layer(plan, i)) ? 1u : 0u;
    }
  }

  void prepare(size_t segment) override {
    inputs_.forget_feedback();
    if (segment < begin_ || segment >= end_) average_layer(segment);
    for (InputSums* sums : loaded_) {
      sums->moments = nullptr;
      sums->average = nullptr;
    }
    loaded_.clear();
    each_used(segment, [&](InputSums& sums, const InputKey& input, const std::string& average) {
      loaded_.push_back(&sums);
      sums.moments = file_.moments(input);
      if (!average.empty()) sums.average = averages_[average];
    });
  }

 private:
  // Calls f for the inputs of a segment whose moments are wanted and saved.
  template <class F>
  void each_used(size_t segment, F&& f) {
    const PlannedSegment& s = plan_.segments[segment];
    for (const PlannedMatrix& m : s.matrices) {
      const std::string name = m.slot.short_name();
      if (!is_product(m.slot) || !wanted_.contains(name) || !file_.has_moments(name)) continue;
      f(*sums_.at(name), InputKey{name, m.slot.cols}, average_of(s, m.slot));
    }
  }

  bool lacks_moments(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      for (const PlannedMatrix& m : plan_.segments[i].matrices) {
        const std::string name = m.slot.short_name();
        if (is_product(m.slot) && wanted_.contains(name) && sums_.at(name)->n_tokens > 0 &&
            !file_.has_moments(name)) {
          return true;
        }
      }
    }
    return false;
  }

  // One expert in memory at a time.
  void average_layer(size_t segment) {
    averages_.clear();
    begin_ = begin_of_layer(plan_, segment);
    end_ = end_of_layer(plan_, segment);
    for (size_t i = begin_; i < end_; ++i) {
      each_used(i, [&](InputSums&, const InputKey& input, const std::string& average) {
        if (!average.empty()) add_to_average(*file_.moments(input), &averages_[average]);
      });
    }
  }

  const StatisticsFile& file_;
  const Plan& plan_;
  const std::set<std::string> wanted_;
  std::map<std::string, std::shared_ptr<InputSums>> sums_;
  std::vector<InputSums*> loaded_;
  Averages averages_;  // of the layer with these segments
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace

std::unique_ptr<Calibration> calibrate_as_saved(const StatisticsFile& file, const Plan& plan,
                                                const ModelConfig& config,
                                                const std::set<std::string>& with_moments,
                                                ThreadPool& pool) {
  return std::make_unique<SavedCalibration>(file, plan, config, with_moments, pool);
}

}  // namespace moe
