// SPDX-License-Identifier: MIT
// Opens a folder or a file as a checkpoint, lists its tensors and documents, and reads tensors in
// parts or whole.
#include "formats/import/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "formats/import/failure.h"
#include "formats/import/gguf.h"
#include "formats/import/gguf_parts.h"
#include "formats/import/safetensors.h"
#include "formats/import/tensor_names.h"
#include "formats/import/unfinished.h"
#include "formats/import/weight_files.h"

namespace moe {
namespace {

constexpr size_t kMaxShards = 512;                  // all remain open
constexpr uint32_t kPutTensor = uint32_t{1} << 31;  // SourceTensor::file of tensors without a file
constexpr uint32_t kPackedTensor = uint32_t{1} << 30;  // the same for packed tensors
constexpr const char* kGguf = ".gguf";

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

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path_, ignored);
  if (!folder) refuse_gguf_piece(path_);
  if (is_gguf(path_)) {
    add_gguf();
  } else if (folder) {
    add_folder();
  } else {
    fail_neither();
  }
}

void Checkpoint::add_folder() {
  const WeightFiles files = find_weight_files(path_);
  for (const std::string& text : files.warnings) warn(text);
  if (files.index.empty()) {
    check_number(files.names.size());
    for (const std::string& name : files.names) add_file(name);
  } else {
    add_index(files.index);
  }
  report_unwrapped();
}

void Checkpoint::fail_neither() const {
  if (!path_exists(path_)) {
    fail(MOE_ERR_NOT_FOUND, "%s: no such file or folder", path_.c_str());
  }
  const InputFile file(path_);
  const std::string start = foreign_start(file);
  if (!start.empty()) fail(MOE_ERR_FORMAT, "%s is %s", path_.c_str(), start.c_str());
  fail(MOE_ERR_NOT_FOUND,
       "%s: neither a folder with config.json and safetensors files nor a .gguf file%s",
       path_.c_str(),
       path_.ends_with(".moe")           ? "; .moe files are converted already"
       : path_.ends_with(".safetensors") ? "; expected the folder of the file"
                                         : "");
}

void Checkpoint::check_number(size_t n_files) const {
  if (n_files <= kMaxShards) return;
  fail(MOE_ERR_FORMAT, "%s: %zu files of weights, at most %zu are accepted", path_.c_str(), n_files,
       kMaxShards);
}

void Checkpoint::add_file(const std::string& name) {
  const auto shard = static_cast<uint32_t>(files_.size());
  refuse_unfinished(path_ + "/" + name);
  files_.emplace_back(path_ + "/" + name);
  const std::string start = foreign_start(files_.back());
  if (!start.empty()) fail(MOE_ERR_FORMAT, "%s is %s", files_.back().path().c_str(), start.c_str());
  for (SourceTensor& tensor : read_safetensors_header(files_.back(), shard)) {
    if (is_adapter_name(tensor.name)) {
      fail(MOE_ERR_UNSUPPORTED,
           "%.120s: tensor %.80s belongs to an adapter that is not merged (PEFT). In Python, "
           "MODEL.merge_and_unload().save_pretrained(NEW) merges it; convert NEW",
           files_.back().path().c_str(), tensor.name.c_str());
    }
    std::string meant = unwrapped_name(tensor.name);
    if (meant != tensor.name && n_unwrapped_++ == 0) unwrapped_ = tensor.name;
    tensor.name = std::move(meant);
    add_tensor(std::move(tensor));
  }
}

// Names of files and tensors may have any bytes; a status makes them printable.
void Checkpoint::warn(const std::string& text) {
  warnings_.emplace_back(Status::error(MOE_ERR_FORMAT, "%s", text.c_str()).text());
}

void Checkpoint::report_unwrapped() {
  if (n_unwrapped_ == 0) return;
  warn(std::to_string(n_unwrapped_) + " of " + std::to_string(tensors_.size()) +
       " tensors have names of a wrapped model, which are read without what the wrapper added: " +
       unwrapped_ + " as " + unwrapped_name(unwrapped_));
}

void Checkpoint::add_tensor(SourceTensor tensor) {
  const auto found = tensors_.find(tensor.name);
  if (found != tensors_.end()) fail_twice(found->second, tensor);
  std::string name = tensor.name;
  tensors_.emplace(std::move(name), std::move(tensor));
}

void Checkpoint::fail_twice(const SourceTensor& one, const SourceTensor& other) const {
  const std::string& path = files_[one.file].path();
  if (one.file == other.file) {
    fail(MOE_ERR_FORMAT, "%.200s: two tensors are %.100s%s", path.c_str(), one.name.c_str(),
         metadata_.is_null() ? ", one of them inside a module such as _orig_mod; keep one" : "");
  }
  fail(MOE_ERR_FORMAT, "tensor %.100s is in %.150s and in %.150s; is one a copy of the other?",
       one.name.c_str(), path.c_str(), files_[other.file].path().c_str());
}

// The first of several parts has the metadata that describes the model.
std::vector<std::string> Checkpoint::find_parts() {
  namespace fs = std::filesystem;
  const std::vector<std::string> parts = gguf_parts(path_);
  if (parts.empty()) return {path_};
  check_number(parts.size());
  std::vector<std::string> missing;
  for (const std::string& part : parts) {
    if (!path_exists(part)) missing.push_back(fs::path(part).filename().string());
  }
  const std::string folder = fs::path(path_).parent_path().string();
  check_none_missing(folder.empty() ? "." : folder, missing, parts.size(), "their names say");
  if (path_ != parts[0]) {
    warn(path_ + " is a part of a split model; read all " + std::to_string(parts.size()) +
         " parts, from " + parts[0]);
    path_ = parts[0];
  }
  return parts;
}

void Checkpoint::add_gguf() {
  for (const std::string& part : find_parts()) {
    const auto shard = static_cast<uint32_t>(files_.size());
    refuse_unfinished(part);
    files_.emplace_back(part);
    GgufHeader header = read_gguf_header(files_.back(), shard);
    if (metadata_.is_null()) metadata_ = std::move(header.metadata);
    for (SourceTensor& tensor : header.tensors) add_tensor(std::move(tensor));
  }
  const JsonNode node(metadata_, path_);
  const int32_t said = node.integer("split.tensors.count", 0, 0, INT32_MAX);
  if (node.integer("split.count", 1, 0, INT32_MAX) > 1 && said != 0 &&
      static_cast<size_t>(said) != tensors_.size()) {
    fail(MOE_ERR_FORMAT, "%s: split.tensors.count is %d, the parts have %zu tensors", path_.c_str(),
         said, tensors_.size());
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

void Checkpoint::ignore_keys(const std::string& keys) {
  constexpr const char* kConfig = "config.json";
  Json changed = metadata_.is_null() ? document(kConfig) : Json();
  Json& all = metadata_.is_null() ? changed : metadata_;
  size_t at = 0;
  while (at <= keys.size() && !erase_key(&all, keys.substr(at))) {
    // Several keys, unless the whole text is one that has a comma.
    const size_t comma = std::min(keys.find(',', at), keys.size());
    const std::string key = keys.substr(at, comma - at);
    if (!erase_key(&all, key)) fail_no_key(all, key);
    at = comma + 1;
  }
  if (metadata_.is_null()) put_document(kConfig, std::move(changed));
}

void Checkpoint::fail_no_key(const Json& all, const std::string& key) const {
  const std::string place = find_key(all, key);
  fail(MOE_ERR_ARGUMENT, "%.150s: no key \"%.80s\" that could be ignored%s%.100s", path_.c_str(),
       key.c_str(), place.empty() ? "" : "; there is ", place.c_str());
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

void Checkpoint::set_rotated(const std::string& name) {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) found->second.rotated = true;
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
  check_number(names.size());
  std::vector<std::string> missing;
  for (const std::string& shard : names) {
    if (!path_exists(path_ + "/" + shard)) missing.push_back(shard);
  }
  check_none_missing(path_, missing, names.size(), "the index names");
  for (const std::string& shard : names) add_file(shard);
  for (const auto& [tensor, file] : map.value().items()) {
    const SourceTensor* found = find(unwrapped_name(tensor));
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
