#pragma once
// The tensors of a checkpoint and the documents beside them: a folder with model.safetensors, or
// shards named by model.safetensors.index.json; or a GGUF file.

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

/// What the weights of a PackedRows may be.
enum class PackedCodes : uint8_t {
  kOther,
  // Of four bits, each 32 inputs with a scale.
  kSigned,   // scale * (-8..7)
  kMinimum,  // scale * (0..15) + minimum
  kNf4,      // scale * (a value of NF4's table)
  // Of eight bits.
  kGroups8,  // scale * (-128..127), each 32 inputs with a scale
  kRows8,    // the same, each row with a scale
  kOther8,   // any others
};

/// The rows of a matrix that lies in several tensors.
class PackedRows {
 public:
  virtual ~PackedRows() = default;
  /// Rows [first, first + n): out (n, cols). May throw whatever Checkpoint::read throws.
  virtual void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const = 0;
  virtual PackedCodes codes(const Checkpoint& checkpoint) const = 0;
  /// Of all that are no others: (n, cols / 32), both; of kRows8 (n) scales. Minimums are those of
  /// codes from 0 on.
  virtual void read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n, float* scales,
                           float* minimums) const = 0;
};

/// Reads are positioned, so any thread may read once it is set up.
class Checkpoint {
 public:
  /// `path`: a folder, or a file NAME.gguf (NAME-00001-of-00003.gguf: all its parts). Opens every
  /// file and checks every header; reads no weights. Throws a Failure. A folder that holds only
  /// PyTorch pickles is refused with the line of Python that turns them into safetensors.
  explicit Checkpoint(const std::string& path);

  /// Of the folder, or of the GGUF file without its ending.
  std::string name() const;
  /// Of the folder, or of the GGUF file.
  const std::string& path() const { return path_; }
  /// The key-value pairs of a GGUF file; null for a folder.
  const Json& metadata() const { return metadata_; }

  /// A JSON file of the folder, or one that was put in its place.
  bool has_document(const std::string& name) const;
  Json document(const std::string& name, const JsonLimits& limits = {}) const;
  void put_document(const std::string& name, Json document);
  /// As if the key were not there: of config.json, or of a GGUF file. MOE_ERR_ARGUMENT when it is
  /// not.
  void ignore_key(const std::string& key);
  /// A tensor that no file has. MOE_ERR_FORMAT when there is one of this name.
  void put_tensor(const std::string& name, std::vector<int64_t> shape, std::vector<float> values);
  /// Other values for a tensor that was put there, as many as it has.
  void fill_tensor(const std::string& name, std::vector<float> values);
  /// One matrix `tensor` (its file and n_elements are set here) in the place of the tensors
  /// `parts`, which are no longer found. MOE_ERR_FORMAT when there is one of its name that is no
  /// part.
  void put_packed(SourceTensor tensor, std::unique_ptr<const PackedRows> rows,
                  std::span<const std::string> parts);
  /// Gives every tensor another name. MOE_ERR_FORMAT when two would have the same.
  void rename(const std::function<std::string(const std::string&)>& new_name);
  /// In order of name.
  const std::map<std::string, SourceTensor, std::less<>>& tensors() const { return tensors_; }
  /// Null when there is none.
  const SourceTensor* find(std::string_view name) const;

  /// Elements [first, first + n) in row-major order, whole blocks. Throws MOE_ERR_IO, or
  /// MOE_ERR_UNSUPPORTED for a type that cannot be read as numbers.
  void read(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const;
  void read(const SourceTensor& tensor, uint64_t first, size_t n, int64_t* out) const;
  /// Of a tensor that was put there packed; null for any other.
  const PackedRows* packed(const SourceTensor& tensor) const;
  /// Bytes [first, first + n) of the tensor as they are stored.
  void read_bytes(const SourceTensor& tensor, uint64_t first, size_t n, uint8_t* out) const;

 private:
  void add_file(const std::string& name);
  void add_index(const std::string& name);
  void add_gguf(const std::string& path);
  void add_tensor(SourceTensor tensor);
  void read_packed(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const;
  template <class T, class Convert>
  void read_as(const SourceTensor& tensor, uint64_t first, size_t n, T* out, Convert convert) const;

  std::string path_;
  std::vector<InputFile> files_;
  Json metadata_;
  std::map<std::string, Json> documents_;
  std::vector<std::vector<float>> put_tensors_;  // numbered from kPutTensor as files are from 0
  std::vector<std::unique_ptr<const PackedRows>> packed_;  // from kPackedTensor
  std::map<std::string, SourceTensor, std::less<>> tensors_;
};

}  // namespace moe
