// SPDX-License-Identifier: MIT
#pragma once
// The experts of one layer as device tables, indexed by kernels.

#include "kernels/cuda/ops.h"
#include "kernels/device.h"
#include "src/base/array.h"
#include "src/base/mutex.h"

namespace moe::cuda {

class CudaDevice;

/// One network of every expert (an X-MoE stack has several). The arrays are on the device, indexed
/// by expert; `like` (host) holds the common fields.
struct NetworkTable {
  Ffn like;
  const Weight* gate = nullptr;
  const Weight* up = nullptr;
  const Weight* down = nullptr;
  const Norm* in_norm = nullptr;
  const Norm* sub_norm = nullptr;
};
inline constexpr int32_t kMaxSublayers = 16;

struct LayerTable {
  const ExpertSource* source = nullptr;
  int32_t n_experts = 0;
  int32_t n_networks = 1;
  bool stack = false;  // X-MoE: networks are residual blocks
  NetworkTable networks[kMaxSublayers];
  void* memory = nullptr;
  size_t bytes = 0;
  bool ready = false;     // all experts are resident
  bool unlike = false;    // experts differ in shape or format
  int32_t n_to_wait = 0;  // calls until the next attempt to make all experts resident

  /// Sets the common fields from one expert.
  Status start(const Expert& expert);
  bool like(const Expert& expert) const;
};

/// Host image of a table's arrays for some experts, all like the table.
class TableImage {
 public:
  explicit TableImage(const Allocator& allocator) : bytes_(allocator) {}
  static size_t bytes(size_t n_experts, int32_t n_networks);
  Status fill(const Array<Expert>& experts, int32_t n_networks);
  /// Sets the table's array pointers for an image at `base`.
  void bind(const uint8_t* base, LayerTable* table) const;
  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  Array<uint8_t> bytes_;
  size_t n_experts_ = 0;
};

/// Tables of layers with all experts on the device. Any thread. One layer at a time is uploaded;
/// meanwhile other threads use finished tables.
class ExpertTables {
 public:
  ExpertTables(CudaDevice& device, const Allocator& allocator)
      : device_(device), tables_(allocator), allocator_(allocator) {}
  ExpertTables(const ExpertTables&) = delete;
  ExpertTables& operator=(const ExpertTables&) = delete;
  ~ExpertTables();

  /// Acquires and pins every expert if all fit. `out` is valid until forget(); null if experts are
  /// offloaded: they do not fit now, are not alike or, with `only_ready`, have not been uploaded
  /// yet. Once `cancelled` is true: MOE_ERR_CANCELLED.
  Status find(ExpertSource& source, int32_t n_experts, bool only_ready,
              const std::atomic<bool>* cancelled, const LayerTable** out);
  void forget(const ExpertSource& source);
  /// Number of layers that became resident: steps may change with it.
  uint64_t n_ready();

 private:
  /// A layer being made resident.
  struct Build {
    ExpertSource& source;
    const std::atomic<bool>* cancelled;
    LayerTable& table;
    Array<Expert> experts;
    bool unlike = false;
  };
  // The caller holds the mutex.
  Status entry(const ExpertSource& source, int32_t n_experts, LayerTable** out);
  bool fits(ExpertSource& source, LayerTable* table);
  // The caller does not hold it.
  Status acquire_all(Build& build);
  Status copy_table(Build& build);
  Status try_to_build(Build& build);

  CudaDevice& device_;
  Mutex mutex_;
  Condition built_;
  Array<Box<LayerTable>> tables_;
  const LayerTable* building_ = nullptr;
  uint64_t n_ready_ = 0;
  const Allocator& allocator_;
};

}  // namespace moe::cuda
