#include "src/convert/calibration/calibrate.h"

#include <algorithm>
#include <cmath>
#include <memory>
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

// A gate reads what its up projection reads: one sum serves both.
std::string key_of(const std::string& name) {
  constexpr std::string_view kGate = ".gate";
  if (!name.ends_with(kGate)) return name;
  return name.substr(0, name.size() - kGate.size()) + ".up";
}

// Sums up squares of inputs, by the matrix that they are multiplied with.
class SquareSums final : public InputWatcher {
 public:
  struct Sums {
    std::string name;
    uint64_t n_rows = 0;
    std::vector<double> squares;
  };

  /// `place`: the Matrix itself, or its tiles where those stay and it is copied.
  void add(const void* place, const Slot& slot) {
    if (slot.role == Role::kGate) return;
    Sums& sums = sums_[place];
    sums.name = slot.short_name();
    sums.squares.resize(static_cast<size_t>(slot.cols));
  }

  void see(const Matrix& weight, const LinearInput& input) override {
    auto found = sums_.find(&weight);
    if (found == sums_.end()) found = sums_.find(weight.tiles);
    if (found == sums_.end()) return;
    Sums& sums = found->second;
    sums.n_rows += static_cast<uint64_t>(input.n_rows);
    for (int32_t i = 0; i < input.n_rows; ++i) {
      const int32_t row = input.row_ids != nullptr ? input.row_ids[i] : i;
      const float* x = input.x + row * input.ld_x;
      double* out = sums.squares.data();
      for (int32_t c = 0; c < input.n_cols; ++c) out[c] += double{x[c]} * double{x[c]};
    }
  }

  const std::unordered_map<const void*, Sums>& all() const { return sums_; }

 private:
  std::unordered_map<const void*, Sums> sums_;
};

struct CloseDevice {
  void operator()(Device* device) const { close_cpu_device(device); }
};

// The float model, open on the CPU.
class SourceModel {
 public:
  SourceModel(ModelSink& file, uint64_t n_bytes, uint64_t memory_cap)
      : pool_(system_allocator()), file_(file) {
    check(pool_.start(0));
    device_.reset(take(open_cpu_device(nullptr, pool_, system_allocator(), kParallelWork, &sums_)));
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

  void watch(const PlannedSegment& segment) {
    Expert expert;
    const bool of_expert = segment.part == Part::kExperts;
    if (of_expert) expert = networks_of(segment);
    for (const PlannedMatrix& m : segment.matrices) {
      if (m.slot.kind != SlotKind::kLinear && m.slot.kind != SlotKind::kVocab) continue;
      const TensorRow& row = *find_row(segment.part, m.slot.role);
      if (of_expert) {
        sums_.add(matrix_in(expert.ffn + std::max(m.slot.sublayer, 0), row), m.slot);
      } else {
        sums_.add(matrix_in(owner(segment, row), row)->tiles, m.slot);
      }
    }
  }

  void read_text(const CalibrationText& text,
                 const std::function<bool(uint64_t, uint64_t)>& progress, CalibrationRun* run) {
    if (model_->config().is_encoder()) return encode(text, progress);
    PerplexityOptions options;
    options.prefix = text.prefix;
    if (progress) options.progress = call_progress;
    options.user = const_cast<void*>(static_cast<const void*>(&progress));
    Perplexity found;
    check(measure_perplexity(*session_, text.tokens, options, &found));
    run->perplexity = found.perplexity;
  }

  const SquareSums& sums() const { return sums_; }

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
    return memory.available / 4 * 3;
  }
  static const Matrix* matrix_in(const void* owner, const TensorRow& row) {
    return reinterpret_cast<const Matrix*>(static_cast<const uint8_t*>(owner) + row.field);
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
  ThreadPool pool_;
  SquareSums sums_;
  ModelSink& file_;
  std::unique_ptr<Device, CloseDevice> device_;
  Box<Model> model_;
  Box<Session> session_;
};

// Inputs that are no numbers say nothing, and neither do zeros alone.
std::vector<float> importance_of(const SquareSums::Sums& sums) {
  double total = 0;
  for (const double square : sums.squares) total += square;
  const double mean = total / static_cast<double>(sums.squares.size());
  if (!(mean > 0) || !std::isfinite(mean)) return {};
  std::vector<float> out;
  for (const double square : sums.squares) out.push_back(static_cast<float>(square / mean));
  return out;
}

bool reached(const PlannedSegment& expert, const InputStatistics& inputs) {
  for (const PlannedMatrix& m : expert.matrices) {
    if (inputs.n_tokens(m.slot.short_name()) > 0) return true;
  }
  return false;
}

}  // namespace

const std::vector<float>* InputStatistics::find(const std::string& name) const {
  const auto found = inputs_.find(key_of(name));
  return found == inputs_.end() || found->second.importance.empty() ? nullptr
                                                                    : &found->second.importance;
}

uint64_t InputStatistics::n_tokens(const std::string& name) const {
  const auto found = inputs_.find(key_of(name));
  return found == inputs_.end() ? 0 : found->second.n_tokens;
}

void InputStatistics::put(const std::string& name, uint64_t n_tokens,
                          std::vector<float> importance) {
  inputs_[name] = {n_tokens, std::move(importance)};
}

CalibrationRun calibrate(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                         const CalibrationText& text, uint64_t memory_cap,
                         const std::function<bool(uint64_t, uint64_t)>& progress) {
  SourceModel model(file, n_bytes, memory_cap);
  CalibrationRun run;
  run.n_tokens = text.tokens.size();
  for (const PlannedSegment& segment : plan.segments) {  // under a cap this reads each expert
    if (progress && !progress(0, text.tokens.size())) fail(MOE_ERR_CANCELLED, "cancelled");
    model.watch(segment);
    run.n_experts += segment.part == Part::kExperts ? 1u : 0u;
  }
  model.read_text(text, progress, &run);
  for (const auto& [place, sums] : model.sums().all()) {
    run.inputs.put(sums.name, sums.n_rows, importance_of(sums));
  }
  for (const PlannedSegment& segment : plan.segments) {
    if (segment.part != Part::kExperts) continue;
    run.n_unreached += reached(segment, run.inputs) ? 0u : 1u;
  }
  return run;
}

}  // namespace moe
