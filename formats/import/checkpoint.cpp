#include "formats/import/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "formats/import/failure.h"
#include "formats/import/gguf.h"
#include "formats/import/safetensors.h"

namespace moe {
namespace {

constexpr size_t kMaxShards = 512;                  // all remain open
constexpr uint32_t kPutTensor = uint32_t{1} << 31;  // SourceTensor::file of tensors without a file
constexpr uint32_t kPackedTensor = uint32_t{1} << 30;  // the same for packed tensors
constexpr size_t kMaxNameInLine = 30;
constexpr const char* kGguf = ".gguf";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// By its name, or by its first bytes: caches of downloads name files by their hash.
bool is_gguf(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  if (path.ends_with(kGguf)) return true;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const InputFile file(path);
  char magic[4] = {};
  if (file.size() >= sizeof magic) file.read(0, magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

// The index is untrusted and must not refer outside its folder.
void check_shard_name(const std::string& name, const std::string& index) {
  const bool plain = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain || !name.ends_with(".safetensors")) {
    fail(MOE_ERR_FORMAT, "%s: \"%.80s\" is not the name of a .safetensors file in the same folder",
         index.c_str(), name.c_str());
  }
}

// The line must fit in an error's text. Trainers wrap the weights in "model" or "module", and
// Megatron nests them; `transformers` writes flat files, possibly several.
[[noreturn]] void fail_pickle(const std::string& name) {
  if (name.starts_with("pytorch_model")) {
    fail(MOE_ERR_UNSUPPORTED,
         "%.60s: a pickle can run code and is not read. In its folder run: python -c \"import glob,"
         "torch,safetensors.torch as s;s.save_file({k:v.contiguous().clone() for x in glob.glob("
         "'pytorch_model*.bin') for k,v in torch.load(x,weights_only=True).items()},"
         "'model.safetensors')\"",
         name.c_str());
  }
  const bool fits = name.size() <= kMaxNameInLine;
  fail(MOE_ERR_UNSUPPORTED,
       "%.32s: pickles can run code. In its folder run: python -c \"import torch as t,safetensors."
       "torch as s;d=t.load('%s',weights_only=True);f=lambda d,p='':{p[1:]:d.contiguous().clone()}"
       "if t.is_tensor(d)else{a:b for k in getattr(d,'keys',list)()for a,b in f(d[k],p+'.'+k)."
       "items()};s.save_file(f(d.get('module',d.get('model',d))),'model.safetensors')\"",
       name.c_str(), fits ? name.c_str() : "THE FILE");
}

[[noreturn]] void fail_without_weights(const std::string& folder) {
  for (const std::string& name : names_in_folder(folder)) {
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      fail_pickle(name);
    }
    if (name.ends_with(kGguf)) {
      fail(MOE_ERR_NOT_FOUND, "%s: found neither %s nor %s, but %.100s: convert that file",
           folder.c_str(), kSingle, kIndex, name.c_str());
    }
  }
  fail(MOE_ERR_NOT_FOUND, "%s: found neither %s nor %s", folder.c_str(), kSingle, kIndex);
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (is_gguf(path_)) {
    add_gguf(path_);
  } else if (path_exists(path_ + "/" + kIndex)) {
    add_index(kIndex);
  } else if (path_exists(path_ + "/" + kSingle)) {
    add_file(kSingle);
  } else if (!std::filesystem::exists(path_, ignored)) {
    fail(MOE_ERR_NOT_FOUND, "%s: no such file or folder", path_.c_str());
  } else if (!std::filesystem::is_directory(path_, ignored)) {
    fail(MOE_ERR_NOT_FOUND,
         "%s: neither a folder with config.json and safetensors files nor a .gguf file%s",
         path_.c_str(),
         path_.ends_with(".moe")           ? "; .moe files are converted already"
         : path_.ends_with(".safetensors") ? "; expected the folder of the file"
                                           : "");
  } else {
    fail_without_weights(path_);
  }
}

void Checkpoint::add_file(const std::string& name) {
  const auto shard = static_cast<uint32_t>(files_.size());
  files_.emplace_back(path_ + "/" + name);
  for (SourceTensor& tensor : read_safetensors_header(files_.back(), shard)) {
    add_tensor(std::move(tensor));
  }
}

void Checkpoint::add_tensor(SourceTensor tensor) {
  const auto found = tensors_.find(tensor.name);
  if (found != tensors_.end()) {
    fail(MOE_ERR_FORMAT, "tensor %.100s is in %s and in %s", tensor.name.c_str(),
         files_[found->second.file].path().c_str(), files_[tensor.file].path().c_str());
  }
  std::string name = tensor.name;
  tensors_.emplace(std::move(name), std::move(tensor));
}

// Parts of a split file are named after the first, whose metadata describes the model.
void Checkpoint::add_gguf(const std::string& path) {
  std::vector<std::string> paths = {path};
  const std::vector<std::string> parts = gguf_parts(path);
  if (!parts.empty()) paths = parts;
  if (paths.size() > kMaxShards) {
    fail(MOE_ERR_FORMAT, "%s: %zu parts, at most %zu are accepted", path.c_str(), paths.size(),
         kMaxShards);
  }
  for (const std::string& part : paths) {
    const auto shard = static_cast<uint32_t>(files_.size());
    files_.emplace_back(part);
    GgufHeader header = read_gguf_header(files_.back(), shard);
    for (SourceTensor& tensor : header.tensors) add_tensor(std::move(tensor));
    if (metadata_.is_null()) metadata_ = std::move(header.metadata);
  }
}

std::string Checkpoint::name() const {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(path_, ignored);
  return metadata_.is_null() ? whole.filename().string() : whole.stem().string();
}

bool Checkpoint::has_document(const std::string& name) const {
  if (documents_.contains(name)) return true;
  return metadata_.is_null() && path_exists(path_ + "/" + name);
}

Json Checkpoint::document(const std::string& name, const JsonLimits& limits) const {
  const auto found = documents_.find(name);
  if (found != documents_.end()) return found->second;
  return read_json_file(path_ + "/" + name, limits);
}

void Checkpoint::put_document(const std::string& name, Json document) {
  documents_[name] = std::move(document);
}

void Checkpoint::ignore_key(const std::string& key) {
  constexpr const char* kConfig = "config.json";
  Json changed = metadata_.is_null() ? document(kConfig) : Json();
  Json& keys = metadata_.is_null() ? changed : metadata_;
  if (!keys.contains(key)) {
    fail(MOE_ERR_ARGUMENT, "%s: no key \"%.100s\" that could be ignored", path_.c_str(),
         key.c_str());
  }
  keys.erase(key);
  if (metadata_.is_null()) put_document(kConfig, std::move(changed));
}

void Checkpoint::put_tensor(const std::string& name, std::vector<int64_t> shape,
                            std::vector<float> values) {
  if (find(name) != nullptr) {
    fail(MOE_ERR_FORMAT, "tensor %.200s: defined by both configuration and checkpoint",
         name.c_str());
  }
  SourceTensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.file = kPutTensor + static_cast<uint32_t>(put_tensors_.size());
  tensor.n_elements = values.size();
  tensors_.emplace(name, std::move(tensor));
  put_tensors_.push_back(std::move(values));
}

void Checkpoint::fill_tensor(const std::string& name, std::vector<float> values) {
  const SourceTensor* tensor = find(name);
  if (tensor == nullptr || tensor->file < kPutTensor || values.size() != tensor->n_elements) {
    fail(MOE_ERR_INTERNAL, "tensor %.200s: not added by put_tensor", name.c_str());
  }
  put_tensors_[tensor->file - kPutTensor] = std::move(values);
}

void Checkpoint::put_packed(SourceTensor tensor, std::unique_ptr<const PackedRows> rows,
                            std::span<const std::string> parts) {
  tensor.part_bytes = 0;
  for (const std::string& part : parts) {
    if (const SourceTensor* found = find(part)) tensor.part_bytes += stored_bytes(*found);
    tensors_.erase(part);
  }
  if (find(tensor.name) != nullptr) {
    fail(MOE_ERR_FORMAT, "tensor %.200s is stored both plain and as %s", tensor.name.c_str(),
         source_type_info(tensor.type).name);
  }
  tensor.file = kPackedTensor + static_cast<uint32_t>(packed_.size());
  tensor.n_elements = 1;
  for (const int64_t n : tensor.shape) tensor.n_elements *= static_cast<uint64_t>(n);
  std::string name = tensor.name;
  tensors_.emplace(std::move(name), std::move(tensor));
  packed_.push_back(std::move(rows));
}

void Checkpoint::set_rounded(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) found->second.bit_linear = BitLinear::kRounded;
}

void Checkpoint::remove_tensor(const std::string& name) { tensors_.erase(name); }

void Checkpoint::rename(const std::function<std::string(const std::string&)>& new_name) {
  std::map<std::string, SourceTensor, std::less<>> old;
  old.swap(tensors_);
  for (auto& [name, tensor] : old) {
    tensor.name = new_name(name);
    add_tensor(std::move(tensor));
  }
}

void Checkpoint::add_index(const std::string& name) {
  const std::string path = path_ + "/" + name;
  const Json index = read_json_file(path);
  const JsonNode map = JsonNode(index, path).at("weight_map");
  if (!map.value().is_object()) map.fail_expected("an object");
  std::vector<std::string> names;  // shard names in order
  for (const auto& [tensor, file] : map.value().items()) {
    names.push_back(JsonNode(file, map.path() + "." + tensor.substr(0, 100)).string());
    check_shard_name(names.back(), path);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() > kMaxShards) {
    fail(MOE_ERR_FORMAT, "%s: %zu shards, at most %zu are accepted", path.c_str(), names.size(),
         kMaxShards);
  }
  for (const std::string& shard : names) add_file(shard);
  for (const auto& [tensor, file] : map.value().items()) {
    const SourceTensor* found = find(tensor);
    const std::string expected = path_ + "/" + file.get<std::string>();
    if (found == nullptr || files_[found->file].path() != expected) {
      fail(MOE_ERR_FORMAT, "tensor %.100s: the index says it is in %.100s, where it is not",
           tensor.c_str(), file.text().c_str());
    }
  }
}

const SourceTensor* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

template <class T, class Convert>
void Checkpoint::read_as(const SourceTensor& tensor, uint64_t first, size_t n, T* out,
                         Convert convert) const {
  const SourceTypeInfo& info = source_type_info(tensor.type);
  if (first > tensor.n_elements || n > tensor.n_elements - first) {
    fail(MOE_ERR_INTERNAL, "tensor %s: read beyond its end", tensor.name.c_str());
  }
  if (first % info.block != 0 || n % info.block != 0) {
    fail(MOE_ERR_SHAPE, "tensor %.200s: a slice cuts through blocks of %u", tensor.name.c_str(),
         info.block);
  }
  if (tensor.file >= kPutTensor) {
    const float* values = put_tensors_[tensor.file - kPutTensor].data() + first;
    convert(SourceType::kF32, reinterpret_cast<const unsigned char*>(values), n, out);
    return;
  }
  constexpr size_t kPieceBytes = size_t{256} << 10;
  std::vector<unsigned char> piece(std::min(n / info.block * info.bytes, kPieceBytes));
  const size_t per_piece = kPieceBytes / info.bytes * info.block;
  for (size_t done = 0; done < n;) {
    const size_t count = std::min(per_piece, n - done);
    files_[tensor.file].read(tensor.offset + (first + done) / info.block * info.bytes, piece.data(),
                             count / info.block * info.bytes);
    if (!convert(tensor.type, piece.data(), count, out + done)) {
      fail(MOE_ERR_UNSUPPORTED, "tensor %.200s: dtype %s cannot be read here", tensor.name.c_str(),
           info.name);
    }
    done += count;
  }
}

const PackedRows* Checkpoint::packed(const SourceTensor& tensor) const {
  const bool is = tensor.file >= kPackedTensor && tensor.file < kPutTensor;
  return is ? packed_[tensor.file - kPackedTensor].get() : nullptr;
}

void Checkpoint::read_packed(const SourceTensor& tensor, uint64_t first, size_t n,
                             float* out) const {
  const PackedRows& rows = *packed(tensor);
  const auto cols = static_cast<uint64_t>(tensor.shape.back());
  if (first > tensor.n_elements || n > tensor.n_elements - first) {
    fail(MOE_ERR_INTERNAL, "tensor %s: read beyond its end", tensor.name.c_str());
  }
  const uint64_t row = first / cols, end = (first + n + cols - 1) / cols;
  if (first % cols == 0 && n % cols == 0) {
    return rows.read(*this, static_cast<int64_t>(row), static_cast<int64_t>(end - row), out);
  }
  std::vector<float> whole((end - row) * cols);
  rows.read(*this, static_cast<int64_t>(row), static_cast<int64_t>(end - row), whole.data());
  std::copy_n(whole.begin() + static_cast<ptrdiff_t>(first - row * cols), n, out);
}

void Checkpoint::read(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const {
  if (packed(tensor) != nullptr) return read_packed(tensor, first, n, out);
  read_as(tensor, first, n, out, convert_to_f32);
}

void Checkpoint::read(const SourceTensor& tensor, uint64_t first, size_t n, int64_t* out) const {
  read_as(tensor, first, n, out, convert_to_i64);
}

void Checkpoint::read_bytes(const SourceTensor& tensor, uint64_t first, size_t n,
                            uint8_t* out) const {
  const uint64_t bytes = tensor.file < kPackedTensor ? stored_bytes(tensor) : 0;
  if (first > bytes || n > bytes - first) {
    fail(MOE_ERR_INTERNAL, "tensor %s: read beyond its end", tensor.name.c_str());
  }
  files_[tensor.file].read(tensor.offset + first, out, n);
}

}  // namespace moe
