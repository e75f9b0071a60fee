// SPDX-License-Identifier: MIT
#pragma once
// A checkpoint's model in floats on the CPU, which reads a text while its inputs are observed.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/moe/writer.h"
#include "kernels/cpu/device_cpu.h"
#include "src/convert/calibration/calibration_text.h"
#include "src/convert/calibration/keys.h"
#include "src/model/model.h"
#include "src/model/tensor_rows.h"
#include "src/run/session.h"

namespace moe {

/// Maximum tokens read at once.
inline constexpr int32_t kWindow = 512;

/// Receives tokens done; false: MOE_ERR_CANCELLED.
using ReadingProgress = std::function<bool(uint64_t done, uint64_t total)>;

/// Memory for sums besides the already allocated model: at least half of the machine's memory
/// remains free.
uint64_t machine_share();

class SourceModel {
 public:
  /// Opens the model of `n_bytes` in `file`. `memory_bytes`: bytes for it and its session; 0: half
  /// of the machine's memory if it would need more. All references must outlive this.
  SourceModel(ModelSink& file, uint64_t n_bytes, uint64_t memory_bytes, ThreadPool& pool,
              InputWatcher& watch);
  SourceModel(const SourceModel&) = delete;
  SourceModel& operator=(const SourceModel&) = delete;

  /// Calls f(place, slot, inputs' matrix) for all linear matrices of a segment. `place`: the Matrix
  /// itself, or its tiles if those stay while it is copied.
  template <class F>
  void each_matrix(const PlannedSegment& segment, F&& f) {
    Expert expert;
    const bool of_expert = segment.part == Part::kExperts;
    if (of_expert) expert = networks_of(segment);
    each_product(segment, model_->config(), [&](const Slot& slot, const std::string& key) {
      const TensorRow& row = *find_row(segment.part, slot.role);
      const void* place = nullptr;
      if (of_expert) {
        place = matrix_in(expert.ffn + std::max(slot.sublayer, 0), row);
      } else {
        place = matrix_in(owner(segment, row), row)->tiles;
      }
      f(place, slot, key);
    });
  }

  const ModelConfig& config() const { return model_->config(); }

  /// In windows of at most kWindow tokens. Returns the perplexity, or 0 for an encoder.
  /// MOE_ERR_RANGE if the prefix fills a window.
  double read_text(const CalibrationText& text, const ReadingProgress& progress);

 private:
  struct CloseDevice {
    void operator()(Device* device) const { close_cpu_device(device); }
  };

  static bool read(void* user, uint64_t offset, void* buffer, size_t n);
  static bool call_progress(void* user, uint64_t done, uint64_t total);
  static uint64_t sensible_bytes(uint64_t n_bytes);
  static const Matrix* matrix_in(const void* owner, const TensorRow& row) {
    return reinterpret_cast<const Matrix*>(static_cast<const uint8_t*>(owner) + row.field);
  }
  const void* owner(const PlannedSegment& segment, const TensorRow& row) const;
  Expert networks_of(const PlannedSegment& segment) const;
  void encode(const CalibrationText& text, const ReadingProgress& progress);

  Logger logger_;
  ModelSink& file_;
  std::unique_ptr<Device, CloseDevice> device_;
  Box<Model> model_;
  Box<Session> session_;
};

}  // namespace moe
