// SPDX-License-Identifier: MIT
#pragma once
// Tensors and documents of a checkpoint: a folder with model.safetensors, the shards listed in
// model.safetensors.index.json or other .safetensors files, or a GGUF file.

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "formats/import/file.h"
#include "formats/import/json.h"
#include "formats/import/source_tensor.h"

namespace moe {

class Checkpoint;

/// The kinds of codes that the weights of a PackedRows may be.
enum class PackedCodes : uint8_t {
  kOther,
  // Codes of four bits; each 32 inputs have a scale.
  kSigned,   // scale * (-8..7)
  kMinimum,  // scale * (0..15) + minimum
  kNf4,      // scale * (a value of NF4's table)
  kFp4,      // scale * (twice a value of E2M1), scales are powers of two
  // Codes of eight bits.
  kGroups8,  // scale * (-128..127), each 32 inputs with a scale
  kRows8,    // the same, each row with a scale
  kOther8,   // any others, and those of four bits that eight hold much better
  kTernary   // scale * (-1..1)
};

/// The rows of a matrix stored in several tensors.
class PackedRows {
 public:
  virtual ~PackedRows() = default;
  /// Rows [first, first + n): out (n, cols). May throw like Checkpoint::read.
  virtual void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const = 0;
  virtual PackedCodes codes(const Checkpoint& checkpoint) const = 0;
  /// Scales and minimums are (n, cols / 32) each; kRows8 has (n) scales. Others and ternary ones
  /// have none. Minimums are those of codes from 0 on.
  virtual void read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n, float* scales,
                           float* minimums) const = 0;
};

/// Reads are positioned: any thread may read after setup.
class Checkpoint {
 public:
  /// `path`: a folder, or a file NAME.gguf (NAME-00001-of-00003.gguf: all parts, whichever is
  /// given). Opens every file and checks every header; reads no weights. Throws a Failure. A folder
  /// with only PyTorch pickles is rejected with a line of Python that converts them to safetensors.
  /// Tensors that were saved inside a wrapper (unwrapped_name) have their names without it.
  explicit Checkpoint(const std::string& path);

  /// The folder's name, or the GGUF file's without its extension.
  std::string name() const;
  /// Path of the folder or the GGUF file (of several, the first).
  const std::string& path() const { return path_; }
  /// A sentence for each thing that was accepted though it is unusual.
  const std::vector<std::string>& warnings() const { return warnings_; }
  void warn(const std::string& text);
  /// Key-value pairs of a GGUF file; null for a folder.
  const Json& metadata() const { return metadata_; }

  /// True for a JSON file of the folder, or a document that replaces one.
  bool has_document(const std::string& name) const;
  Json document(const std::string& name, const JsonLimits& limits = {}) const;
  void put_document(const std::string& name, Json document);
  /// Removes a key of config.json or of a GGUF file, or several with commas between; of a nested
  /// object "rope_scaling.finetuned". MOE_ERR_ARGUMENT if missing.
  void ignore_keys(const std::string& keys);
  /// Adds a tensor that is in no file. MOE_ERR_FORMAT if the name exists.
  void put_tensor(const std::string& name, std::vector<int64_t> shape, std::vector<float> values);
  /// Replaces the values of an added tensor; their number must match.
  void fill_tensor(const std::string& name, std::vector<float> values);
  /// Says that every forward pass rounds the tensor's matrix to ternary weights.
  void set_rounded(const std::string& name);
  /// Marks a matrix that is stored for rotated inputs.
  void set_rotated(const std::string& name);
  /// Replaces the tensors `parts` by one matrix `tensor` (sets its file, n_elements
  /// and part_bytes).
  /// MOE_ERR_FORMAT if its name exists and is not one of the parts.
  void put_packed(SourceTensor tensor, std::unique_ptr<const PackedRows> rows,
                  std::span<const std::string> parts);
  void remove_tensor(const std::string& name);
  /// Renames every tensor. MOE_ERR_FORMAT if two get the same name.
  void rename(const std::function<std::string(const std::string&)>& new_name);
  /// Sorted by name.
  const std::map<std::string, SourceTensor, std::less<>>& tensors() const { return tensors_; }
  /// Null if missing.
  const SourceTensor* find(std::string_view name) const;

  /// Elements [first, first + n) in row-major order, whole blocks. Throws MOE_ERR_IO, or
  /// MOE_ERR_UNSUPPORTED for a type that has no numeric values.
  void read(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const;
  void read(const SourceTensor& tensor, uint64_t first, size_t n, int64_t* out) const;
  /// Rows of a packed tensor; null for any other.
  const PackedRows* packed(const SourceTensor& tensor) const;
  /// The opened files, which SourceTensor::file counts.
  const std::vector<InputFile>& files() const { return files_; }
  /// Bytes [first, first + n) as stored.
  void read_bytes(const SourceTensor& tensor, uint64_t first, size_t n, uint8_t* out) const;

 private:
  [[noreturn]] void fail_neither() const;
  [[noreturn]] void fail_no_key(const Json& all, const std::string& key) const;
  [[noreturn]] void fail_twice(const SourceTensor& one, const SourceTensor& other) const;
  void check_number(size_t n_files) const;
  void add_folder();
  void add_file(const std::string& name);
  void report_unwrapped();
  void add_index(const std::string& name);
  std::vector<std::string> find_parts();
  void add_gguf();
  void add_tensor(SourceTensor tensor);
  void read_packed(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const;
  template <class T, class Convert>
  void read_as(const SourceTensor& tensor, uint64_t first, size_t n, T* out, Convert convert) const;

  std::string path_;
  std::vector<InputFile> files_;
  Json metadata_;
  std::map<std::string, Json> documents_;
  std::vector<std::vector<float>> put_tensors_;            // indexed from kPutTensor
  std::vector<std::unique_ptr<const PackedRows>> packed_;  // indexed from kPackedTensor
  std::map<std::string, SourceTensor, std::less<>> tensors_;
  std::vector<std::string> warnings_;
  size_t n_unwrapped_ = 0;  // tensors whose name lost what a wrapper added
  std::string unwrapped_;   // the first of them, as stored
};

}  // namespace moe
