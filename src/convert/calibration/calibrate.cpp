#include "src/convert/calibration/calibrate.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "formats/import/failure.h"
#include "kernels/cpu/table.h"

namespace moe {
namespace {

// Name under which the same matrix of all experts in a layer is averaged; empty for others.
std::string average_of(const PlannedSegment& segment, const Slot& slot) {
  if (segment.part != Part::kExperts) return {};
  return std::to_string(segment.layer) + "." + std::to_string(slot.sublayer) + "." +
         std::to_string(static_cast<int>(slot.role));
}

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

}  // namespace

class Calibration::Impl {
 public:
  Impl(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
       CalibrationOptions options, CalibrationRun* run)
      : options_(std::move(options)), text_(text), plan_(plan), run_(run) {
    check(pool_.start(0));
    model_.emplace(file, n_bytes, options_.model_bytes, pool_, watch_);
    run_->n_tokens = text.tokens.size();
    for (const PlannedSegment& segment : plan.segments) {  // under a cap this reads every expert
      if (options_.progress && !options_.progress(0, text.tokens.size())) {
        fail(MOE_ERR_CANCELLED, "cancelled");
      }
      find_sums(segment);
      run_->n_experts += segment.part == Part::kExperts ? 1u : 0u;
    }
    begin_group(0);
    run_->perplexity = read();
    watch_.keep_squares();
    for (auto& [name, sums] : sums_) sums->find_importance();
    for (const PlannedSegment& segment : plan.segments) {
      run_->n_unreached += segment.part == Part::kExperts && !reached(segment) ? 1u : 0u;
    }
    close_model_at_end();
  }

  void prepare(size_t segment) {
    if (segment < end_) return;
    begin_group(segment);
    if (any_moments_) read();
    close_model_at_end();
  }

  InputStatistics& inputs() { return inputs_; }

 private:
  using Averages = std::map<std::string, std::shared_ptr<SecondMoments>>;

  // Frees the model after the last pass.
  void close_model_at_end() {
    if (end_ == plan_.segments.size()) model_.reset();
  }

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
      if (segment.part != Part::kEmbedding && options_.with_moments.count(name) != 0) {
        wanted_.insert(key);
      }
    });
  }

  // Calls f for the sums of a segment that will have moments, and their average.
  template <class F>
  void each_wanted(const PlannedSegment& segment, F&& f) {
    for (const PlannedMatrix& m : segment.matrices) {
      if (!is_product(m.slot)) continue;
      const auto found = wanted_.find(m.slot.short_name());
      if (found != wanted_.end()) f(*sums_[*found], average_of(segment, m.slot));
    }
  }

  // Segments of one layer stay together, because experts are averaged.
  size_t end_of_layer(size_t begin) const {
    size_t end = begin;
    const std::vector<PlannedSegment>& all = plan_.segments;
    while (end < all.size() && all[end].layer == all[begin].layer) ++end;
    return end;
  }

  uint64_t moment_bytes(size_t begin, size_t end) {
    uint64_t bytes = 0;
    std::set<std::string> averages;
    for (size_t i = begin; i < end; ++i) {
      each_wanted(plan_.segments[i], [&](const InputSums& sums, const std::string& average) {
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
    const uint64_t room = options_.moment_bytes != 0 ? options_.moment_bytes : machine_share();
    uint64_t used = 0;
    any_moments_ = false;
    first_ = end_ = begin;
    while (end_ < plan_.segments.size()) {
      const size_t next = end_of_layer(end_);
      const uint64_t bytes = moment_bytes(end_, next);
      if (used + bytes > room && (any_moments_ || bytes <= room)) return;
      if (bytes <= room) {
        for (size_t i = end_; i < next; ++i) add_moments(plan_.segments[i]);
        used += bytes;
      } else {
        ++run_->n_without_room;
      }
      end_ = next;
    }
  }

  void add_moments(const PlannedSegment& segment) {
    each_wanted(segment, [&](InputSums& sums, const std::string&) {
      sums.moments = std::make_unique<SecondMoments>(sums.n_inputs);
      any_moments_ = true;
    });
  }

  double read() {
    ++run_->n_passes;
    const double perplexity = model_->read_text(text_, options_.progress);
    Averages averages;
    for (size_t i = first_; i < end_; ++i) {
      each_wanted(plan_.segments[i], [&](InputSums& sums, const std::string& average) {
        if (!average.empty()) add_to(&averages[average], &sums);
      });
    }
    return perplexity;
  }

  static void add_to(std::shared_ptr<SecondMoments>* average, InputSums* sums) {
    if (sums->moments == nullptr || !sums->moments->is_finite()) return;
    if (*average == nullptr) *average = std::make_shared<SecondMoments>(sums->n_inputs);
    (*average)->add(*sums->moments);
    sums->average = *average;
  }

  bool reached(const PlannedSegment& expert) const {
    for (const PlannedMatrix& m : expert.matrices) {
      if (inputs_.n_tokens(m.slot.short_name()) > 0) return true;
    }
    return false;
  }

  const CalibrationOptions options_;
  const CalibrationText& text_;
  const Plan& plan_;
  CalibrationRun* run_;
  ThreadPool pool_{system_allocator()};
  InputWatch watch_{pool_};
  std::optional<SourceModel> model_;
  InputStatistics inputs_{pool_};
  std::map<std::string, std::shared_ptr<InputSums>> sums_;
  std::set<std::string> wanted_;
  // Segments with moments.
  size_t first_ = 0;
  size_t end_ = 0;
  bool any_moments_ = false;
};

Calibration::Calibration(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                         const CalibrationText& text, CalibrationOptions options)
    : impl_(std::make_unique<Impl>(file, n_bytes, plan, text, std::move(options), &run_)) {}

Calibration::~Calibration() = default;

void Calibration::prepare(size_t segment) { impl_->prepare(segment); }

InputStatistics& Calibration::inputs() { return impl_->inputs(); }

}  // namespace moe
