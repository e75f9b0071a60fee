#pragma once
// The tensors of a checkpoint folder: model.safetensors, or shards named by
// model.safetensors.index.json.

#include <map>
#include <string_view>

#include "formats/import/file.h"
#include "formats/import/source_tensor.h"

namespace moe {

/// Immutable after construction; reads are positioned, so any thread may read.
class Checkpoint {
 public:
  /// Opens every file and checks every header; reads no weights. Throws a Failure. A folder that
  /// holds only PyTorch pickles is refused with the line of Python that turns them into
  /// safetensors.
  explicit Checkpoint(const std::string& folder);

  const std::string& folder() const { return folder_; }
  /// In order of name.
  const std::map<std::string, SourceTensor, std::less<>>& tensors() const { return tensors_; }
  /// Null when there is none.
  const SourceTensor* find(std::string_view name) const;

  /// Elements [first, first + n) in row-major order. Throws MOE_ERR_IO, or MOE_ERR_UNSUPPORTED for
  /// a type that cannot be read as numbers.
  void read(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const;
  void read(const SourceTensor& tensor, uint64_t first, size_t n, int64_t* out) const;
  /// Bytes [first, first + n) of the tensor as they are stored.
  void read_bytes(const SourceTensor& tensor, uint64_t first, size_t n, uint8_t* out) const;

 private:
  void add_file(const std::string& name);
  void add_index(const std::string& name);
  template <class T, class Convert>
  void read_as(const SourceTensor& tensor, uint64_t first, size_t n, T* out, Convert convert) const;

  std::string folder_;
  std::vector<InputFile> files_;
  std::map<std::string, SourceTensor, std::less<>> tensors_;
};

}  // namespace moe
