// SPDX-License-Identifier: MIT
#pragma once
// The logits after a session's last token: where they are, and what the device knows about them.

#include "kernels/device.h"
#include "src/base/carver.h"
#include "src/model/config.h"

namespace moe {

/// A copy of the device's report on the session's stored row, and the request for it.
struct StoredReport {
  void lay_out(Carver& c, int32_t vocab_size);
  void take(const SampleSpec& asked, const SampleReport& found);

  SampleSpec spec;
  SampleReport values;  // points into the arrays
  std::span<TokenCandidate> candidates;
  std::span<uint64_t> sums;
  std::span<uint64_t> weights;
};

class LastLogits {
 public:
  void lay_out(Carver& c, const Device& device, const ModelConfig& config);

  /// They are those after the last token of the text.
  bool known() const { return place_ == kOnHost || place_ == kOnDevice; }
  /// They, or those that a pass has left, are in WorkMemory::device_logits and not in row().
  bool on_device() const { return place_ == kOnDevice || place_ == kLeftOnDevice; }
  /// Host memory (n_outputs). Unless it holds the logits, passes may use it for others.
  std::span<float> row() const { return row_; }

  // Where they are changes so: a pass leaves those after its last token, and they are kept when its
  // tokens become part of the text.
  void forget() { place_ = kNowhere; }
  void leave_on_host() { place_ = kLeftOnHost; }
  void leave_on_device(const SampleReport& found) {
    place_ = kLeftOnDevice;
    report.take(spec, found);
  }
  void keep() {
    if (place_ == kLeftOnHost) place_ = kOnHost;
    if (place_ == kLeftOnDevice) place_ = kOnDevice;
  }
  /// They have been copied to row().
  void fetched() {
    if (place_ == kLeftOnDevice) place_ = kLeftOnHost;
    if (place_ == kOnDevice) place_ = kOnHost;
  }

  bool stay = false;    // the logits of a single token remain on the device
  SampleSpec spec;      // what steps request for a stored row: the latest sampling parameters
  StoredReport report;  // of the row on the device

 private:
  enum Place : uint8_t { kNowhere, kLeftOnHost, kLeftOnDevice, kOnHost, kOnDevice };
  Place place_ = kNowhere;
  std::span<float> row_;
};

}  // namespace moe
