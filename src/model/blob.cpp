// SPDX-License-Identifier: MIT
// Uses a segment where it lies in memory, or reads it into memory of the device; checks codes, and
// tables of experts.
#include "src/model/blob.h"

#include "quant/formats.h"
#include "src/base/os/memory.h"

namespace moe {
namespace {

// Host memory freed at the end of a scope.
class Staging {
 public:
  explicit Staging(const Allocator& allocator) : allocator_(allocator) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { deallocate(allocator_, memory_, bytes_); }

  Status allocate_bytes(size_t n) {
    memory_ = allocate(allocator_, n, kMatrixAlign);
    bytes_ = n;
    return memory_ == nullptr ? out_of_memory("weights", n) : Status();
  }
  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }

 private:
  const Allocator& allocator_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

Status check_table(const Matrix& m, int32_t n_experts) {
  const auto* ids = reinterpret_cast<const int32_t*>(m.tiles);
  for (int32_t i = 0; i < m.rows; ++i) {
    if (ids[i] >= 0 && ids[i] < n_experts) continue;
    return Status::error(MOE_ERR_RANGE, "token %d: expected an expert in 0..%d, found %d", i,
                         n_experts - 1, ids[i]);
  }
  return {};
}

}  // namespace

Status check_values(const MoeFile& file, const FileSegment& segment, const uint8_t* base,
                    int32_t n_experts) {
  for (const BlobMatrix& m : file.layout(segment).matrices) {
    const Matrix matrix = view(m, base);
    const Status status =
        m.format == FormatId::kI32 ? check_table(matrix, n_experts) : validate_codes(matrix);
    if (status.ok()) continue;
    char name[kTensorNameBytes];
    return file.in_file(status.with_context(
        "tensor %s", tensor_name(segment.part, segment.layer, segment.expert, m, name)));
  }
  return {};
}

Blob::~Blob() {
  if (owned_ != nullptr) device_->free(owned_, bytes_);
}

void Blob::swap(Blob& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(owned_, other.owned_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
}

Status Blob::load(const BlobLoader& loader, const FileSegment& segment) {
  if (base_ != nullptr) return {};
  if (segment.raw > SIZE_MAX) return out_of_memory("weights", segment.raw);  // on 32-bit machines
  const uint8_t* in_place =
      loader.device.uses_host_memory() ? loader.file.in_place(segment) : nullptr;
  if (in_place == nullptr) return read(loader, segment);
  if (loader.verify) MOE_TRY(loader.file.check(segment, in_place));
  MOE_TRY(check_values(loader.file, segment, in_place, loader.n_experts));
  base_ = in_place;
  return {};
}

Status Blob::read(const BlobLoader& loader, const FileSegment& segment) {
  const auto n = static_cast<size_t>(segment.raw);
  Blob fresh;
  MOE_TRY(loader.device.alloc(n, &fresh.owned_));
  fresh.bytes_ = n;
  fresh.device_ = &loader.device;
  fresh.base_ = static_cast<const uint8_t*>(fresh.owned_);
  const bool direct = loader.device.uses_host_memory();
  Staging staging(loader.allocator);
  if (!direct) MOE_TRY(staging.allocate_bytes(n));
  uint8_t* host = direct ? static_cast<uint8_t*>(fresh.owned_) : staging.data();
  if (direct) {
    prefer_large_pages(host, n);
    populate_pages(host, n);
  }
  MOE_TRY(loader.file.read(segment, loader.verify, host));
  MOE_TRY(check_values(loader.file, segment, host, loader.n_experts));
  if (!direct) MOE_TRY(loader.device.upload(fresh.owned_, host, n));
  swap(fresh);
  return {};
}

}  // namespace moe
