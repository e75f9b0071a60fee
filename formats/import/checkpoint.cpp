#include "formats/import/checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "formats/import/safetensors.h"

namespace moe {
namespace {

constexpr size_t kMaxShards = 512;  // all stay open
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// The index comes with the checkpoint and must not lead out of its folder.
void check_shard_name(const std::string& name, const std::string& index) {
  const bool plain = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  if (!plain || !name.ends_with(".safetensors")) {
    fail(MOE_ERR_FORMAT, "%s: \"%.80s\" is not the name of a .safetensors file in the same folder",
         index.c_str(), name.c_str());
  }
}

[[noreturn]] void fail_without_weights(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string kind = entry.path().extension().string();
    if (kind != ".bin" && kind != ".pt" && kind != ".pth") continue;
    fail(MOE_ERR_UNSUPPORTED,
         "%.60s: a PyTorch pickle can run code and is not read. In %.100s run: python -c \"import "
         "torch, safetensors.torch as s; s.save_file({k: v.contiguous().clone() for k, v in "
         "torch.load('%.60s', weights_only=True).items()}, 'model.safetensors')\"",
         name.c_str(), folder.c_str(), name.c_str());
  }
  fail(MOE_ERR_NOT_FOUND, "%s: neither %s nor %s is there", folder.c_str(), kSingle, kIndex);
}

}  // namespace

Checkpoint::Checkpoint(const std::string& folder) : folder_(folder) {
  if (path_exists(folder_ + "/" + kIndex)) {
    add_index(kIndex);
  } else if (path_exists(folder_ + "/" + kSingle)) {
    add_file(kSingle);
  } else if (std::error_code ignored; !std::filesystem::is_directory(folder_, ignored)) {
    fail(MOE_ERR_NOT_FOUND, "%s: not a folder; expected one with config.json and safetensors files",
         folder_.c_str());
  } else {
    fail_without_weights(folder_);
  }
}

void Checkpoint::add_file(const std::string& name) {
  const auto shard = static_cast<uint32_t>(files_.size());
  files_.emplace_back(folder_ + "/" + name);
  for (SourceTensor& tensor : read_safetensors_header(files_.back(), shard)) {
    const auto [other, fresh] = tensors_.emplace(tensor.name, tensor);
    if (!fresh) {
      fail(MOE_ERR_FORMAT, "tensor %.100s is in %s and in %s", tensor.name.c_str(),
           files_[other->second.file].path().c_str(), files_.back().path().c_str());
    }
  }
}

void Checkpoint::add_index(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  const Json index = read_json_file(path);
  const JsonNode map = JsonNode(index, path).at("weight_map");
  if (!map.value().is_object()) map.fail_expected("an object");
  std::vector<std::string> names;  // of the shards, in order
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
    const std::string expected = folder_ + "/" + file.get<std::string>();
    if (found == nullptr || files_[found->file].path() != expected) {
      fail(MOE_ERR_FORMAT, "tensor %.100s: the index says it is in %.100s, where it is not",
           tensor.c_str(), file.get_ref<const std::string&>().c_str());
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
  constexpr size_t kPieceBytes = size_t{256} << 10;
  std::vector<unsigned char> piece(std::min(n * info.bytes, kPieceBytes));
  const size_t per_piece = kPieceBytes / info.bytes;
  for (size_t done = 0; done < n;) {
    const size_t count = std::min(per_piece, n - done);
    files_[tensor.file].read(tensor.offset + (first + done) * info.bytes, piece.data(),
                             count * info.bytes);
    if (!convert(tensor.type, piece.data(), count, out + done)) {
      fail(MOE_ERR_UNSUPPORTED, "tensor %.200s: dtype %s cannot be read here", tensor.name.c_str(),
           info.name);
    }
    done += count;
  }
}

void Checkpoint::read(const SourceTensor& tensor, uint64_t first, size_t n, float* out) const {
  read_as(tensor, first, n, out, convert_to_f32);
}

void Checkpoint::read(const SourceTensor& tensor, uint64_t first, size_t n, int64_t* out) const {
  read_as(tensor, first, n, out, convert_to_i64);
}

void Checkpoint::read_bytes(const SourceTensor& tensor, uint64_t first, size_t n,
                            uint8_t* out) const {
  const uint64_t bytes = tensor.n_elements * source_type_info(tensor.type).bytes;
  if (first > bytes || n > bytes - first) {
    fail(MOE_ERR_INTERNAL, "tensor %s: read beyond its end", tensor.name.c_str());
  }
  files_[tensor.file].read(tensor.offset + first, out, n);
}

}  // namespace moe
