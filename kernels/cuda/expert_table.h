#pragma once
// The experts of one layer as tables on the device, from which kernels pick by index.

#include "kernels/cuda/ops.h"
#include "src/base/array.h"
#include "src/base/mutex.h"

namespace moe::cuda {

class CudaDevice;

/// One network of every expert (an X-MoE stack has several). The arrays are on the device, by
/// expert; `like` (host) is what all of them have in common.
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
};

/// Host image of a table's arrays: filled expert by expert, then copied over.
class TableImage {
 public:
  explicit TableImage(const Allocator& allocator) : bytes_(allocator) {}
  Status open(int32_t n_experts, int32_t n_networks);
  /// Adds an expert. False when its matrices are unlike those of the experts before it.
  bool set(int32_t index, const Expert& expert, LayerTable* table);
  /// Tells the table where its arrays are once the image is at `base`.
  void bind(const uint8_t* base, LayerTable* table) const;
  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  Array<uint8_t> bytes_;
  int32_t n_experts_ = 0;
  int32_t n_networks_ = 1;
  bool first_ = true;
};

/// The tables of layers whose experts are all on the device. Any thread.
class ExpertTables {
 public:
  ExpertTables(CudaDevice& device, const Allocator& allocator)
      : device_(device), tables_(allocator), allocator_(allocator) {}
  ExpertTables(const ExpertTables&) = delete;
  ExpertTables& operator=(const ExpertTables&) = delete;
  ~ExpertTables();

  /// Acquires every expert when first asked for a layer, and keeps them. `out` stays valid until
  /// forget(); null when the experts' matrices are not alike, or do not fit: then they take turns.
  Status find(ExpertSource& source, int32_t n_experts, const LayerTable** out);
  void forget(const ExpertSource& source);

 private:
  Status build(ExpertSource& source, int32_t n_experts, LayerTable* table, bool* alike);

  CudaDevice& device_;
  Mutex mutex_;
  Array<Box<LayerTable>> tables_;
  const Allocator& allocator_;
};

}  // namespace moe::cuda
