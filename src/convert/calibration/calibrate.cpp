#include "src/convert/calibration/calibrate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "formats/import/failure.h"
#include "formats/moe/reader.h"
#include "kernels/cpu/device_cpu.h"
#include "kernels/cpu/table.h"
#include "src/base/machine_memory.h"
#include "src/model/tensor_rows.h"
#include "src/run/perplexity.h"

namespace moe {
namespace {

constexpr int32_t kWindow = 512;

// The matrix that has the same inputs and is summed up for it: a gate reads what its up projection
// reads, and queries and keys what values do, but for keys and values of a latent.
std::string key_of(const std::string& name, bool latent) {
  struct Pair {
    std::string_view end, other;
    bool not_latent;
  };
  static constexpr Pair kPairs[] = {{".gate", ".up", false},
                                    {".attention.k", ".attention.v", false},
                                    {".attention.q", ".attention.v", true}};
  for (const Pair& p : kPairs) {
    if (!name.ends_with(p.end) || (p.not_latent && latent)) continue;
    return name.substr(0, name.size() - p.end.size()).append(p.other);
  }
  return name;
}

// Where the same matrices of all experts in a layer are averaged; empty for others.
std::string average_of(const PlannedSegment& segment, const Slot& slot) {
  if (segment.part != Part::kExperts) return {};
  return std::to_string(segment.layer) + "." + std::to_string(slot.sublayer) + "." +
         std::to_string(static_cast<int>(slot.role));
}

bool is_product(const Slot& slot) {
  return slot.kind == SlotKind::kLinear || slot.kind == SlotKind::kVocab;
}

// Sums up inputs, by the matrix that they are multiplied with.
class InputWatch final : public InputWatcher {
 public:
  explicit InputWatch(ThreadPool& pool) : pool_(pool) {}

  /// `place`: the Matrix itself, or its tiles where those stay and it is copied.
  void add(const void* place, std::shared_ptr<InputSums> sums) {
    panel_.resize(std::max(panel_.size(), SecondMoments::panel_size(sums->n_inputs)));
    sums_[place] = std::move(sums);
  }
  /// From now on squares and tokens are known.
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

struct CloseDevice {
  void operator()(Device* device) const { close_cpu_device(device); }
};

// The float model, open on the CPU.
class SourceModel {
 public:
  SourceModel(ModelSink& file, uint64_t n_bytes, uint64_t memory_cap, ThreadPool& pool,
              InputWatcher& watch)
      : file_(file) {
    device_.reset(take(open_cpu_device(nullptr, pool, system_allocator(), kParallelWork, &watch)));
    FileSource source = FileSource::from_callbacks({n_bytes, read, this});
    Box<MoeFile> opened = take(MoeFile::open(std::move(source), system_allocator()));
    ModelOptions options;
    options.verify = false;
    options.memory_cap = memory_cap != 0 ? memory_cap : sensible_cap(n_bytes);
    model_ = take(Model::open(std::move(opened), options, *device_, logger_, system_allocator()));
    SessionOptions session;
    session.context = std::min(model_->config().context_length, kWindow);
    session_ = take(Session::create(*model_, session, system_allocator()));
  }
  SourceModel(const SourceModel&) = delete;
  SourceModel& operator=(const SourceModel&) = delete;

  /// Calls f(place, slot, inputs' matrix) for all linear matrices of a segment.
  template <class F>
  void each_matrix(const PlannedSegment& segment, F&& f) {
    Expert expert;
    const bool of_expert = segment.part == Part::kExperts;
    if (of_expert) expert = networks_of(segment);
    for (const PlannedMatrix& m : segment.matrices) {
      if (!is_product(m.slot)) continue;
      const TensorRow& row = *find_row(segment.part, m.slot.role);
      const void* place = nullptr;
      if (of_expert) {
        place = matrix_in(expert.ffn + std::max(m.slot.sublayer, 0), row);
      } else {
        place = matrix_in(owner(segment, row), row)->tiles;
      }
      f(place, m.slot, key_of(m.slot.short_name(), is_latent(segment)));
    }
  }

  /// Perplexity, or 0 for an encoder.
  double read_text(const CalibrationText& text,
                   const std::function<bool(uint64_t, uint64_t)>& progress) {
    if (model_->config().is_encoder()) {
      encode(text, progress);
      return 0;
    }
    PerplexityOptions options;
    options.prefix = text.prefix;
    if (progress) options.progress = call_progress;
    options.user = const_cast<void*>(static_cast<const void*>(&progress));
    Perplexity found;
    check(measure_perplexity(*session_, text.tokens, options, &found));
    return found.perplexity;
  }

 private:
  static int read(void* user, uint64_t offset, void* buffer, size_t n) {
    return static_cast<SourceModel*>(user)->file_.read(offset, buffer, n).ok() ? 0 : -1;
  }
  static bool call_progress(void* user, uint64_t done, uint64_t total) {
    return (*static_cast<const std::function<bool(uint64_t, uint64_t)>*>(user))(done, total);
  }
  static uint64_t sensible_cap(uint64_t n_bytes) {
    MachineMemory memory;
    if (!machine_memory(&memory) || n_bytes <= memory.available / 2) return 0;
    return memory.available / 2;
  }
  static const Matrix* matrix_in(const void* owner, const TensorRow& row) {
    return reinterpret_cast<const Matrix*>(static_cast<const uint8_t*>(owner) + row.field);
  }

  bool is_latent(const PlannedSegment& segment) const {
    return segment.layer >= 0 &&
           model_->config().layers[static_cast<size_t>(segment.layer)].attention.latent > 0;
  }

  const void* owner(const PlannedSegment& segment, const TensorRow& row) const {
    if (segment.layer < 0) return &model_->weights();
    const LayerWeights& layer = model_->layer(segment.layer);
    return row.of_network() ? static_cast<const void*>(&layer.ffn) : &layer;
  }

  // Its networks lie where they are, in memory or not.
  Expert networks_of(const PlannedSegment& segment) const {
    ExpertSource& experts = *model_->layer(segment.layer).experts;
    Expert expert;
    check(experts.acquire(segment.expert, {ExpertWait::kRoom, nullptr, nullptr}, &expert));
    experts.release(segment.expert);
    return expert;
  }

  void encode(const CalibrationText& text,
              const std::function<bool(uint64_t, uint64_t)>& progress) {
    std::vector<float> pooled(static_cast<size_t>(model_->config().d_model));
    Encoding out;
    out.pooled = pooled.data();
    const size_t room = static_cast<size_t>(session_->context()) - text.prefix.size();
    for (size_t done = 0; done < text.tokens.size();) {
      const size_t n = std::min(room, text.tokens.size() - done);
      std::vector<int32_t> window = text.prefix;
      window.insert(window.end(), text.tokens.data() + done, text.tokens.data() + done + n);
      check(session_->encode(window, out));
      done += n;
      if (progress && !progress(done, text.tokens.size())) fail(MOE_ERR_CANCELLED, "cancelled");
    }
  }

  Logger logger_;
  ModelSink& file_;
  std::unique_ptr<Device, CloseDevice> device_;
  Box<Model> model_;
  Box<Session> session_;
};

// Beside the model, for which half of the machine is left at least: it has been allocated by now.
uint64_t machine_share() {
  constexpr uint64_t kUnknown = uint64_t{1} << 30;
  MachineMemory memory;
  return machine_memory(&memory) ? memory.available / 2 : kUnknown;
}

}  // namespace

class Calibration::Impl {
 public:
  Impl(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
       CalibrationOptions options, CalibrationRun* run)
      : options_(std::move(options)), text_(text), plan_(plan), run_(run) {
    check(pool_.start(0));
    model_.emplace(file, n_bytes, options_.model_bytes, pool_, watch_);
    run_->n_tokens = text.tokens.size();
    for (const PlannedSegment& segment : plan.segments) {  // under a cap this reads each expert
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

  // After the last pass its memory is of no use.
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

  // The sums of a segment that are to have moments, and what they are averaged in.
  template <class F>
  void each_wanted(const PlannedSegment& segment, F&& f) {
    for (const PlannedMatrix& m : segment.matrices) {
      if (!is_product(m.slot)) continue;
      const auto found = wanted_.find(m.slot.short_name());
      if (found != wanted_.end()) f(*sums_[*found], average_of(segment, m.slot));
    }
  }

  // Segments of one layer stay together, as experts are averaged.
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

  // Moments of as many layers from `begin` on as there is room for. A layer that alone has none
  // keeps to its mean squares.
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
  // Segments whose moments are there.
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
