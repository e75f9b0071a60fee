// SPDX-License-Identifier: MIT
// Reads and writes the files of evaluated texts.
#include "src/serve/state_folder.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>

namespace moe_serve {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".moe-text";
constexpr const char* kPart = ".moe-part-";  // of a file that is being written
// In a saved session: what names the format and the model, the number of tokens, and the tokens.
constexpr size_t kModelBytes = 32;
constexpr size_t kMinor = 10;  // two bytes, which say whether a layer that guesses is in the file
constexpr size_t kHead = 64;
constexpr uint64_t kMostSaved = uint64_t{1} << 24;

uint64_t number_at(const char* bytes, int n) {
  uint64_t value = 0;
  for (int i = 0; i < n; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// FNV-1a.
uint64_t hash_of(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

// These bytes of a saved session name the model. The others say what is in the file besides.
std::string mark_in(const char* bytes) {
  std::string mark(bytes, kModelBytes);
  mark[kMinor] = mark[kMinor + 1] = 0;
  return mark;
}

// Reads what names the model, and the tokens. False for a file that does not begin as a saved
// session.
bool read_text(std::istream& in, std::string& model, std::vector<int32_t>& tokens) {
  char head[kHead];
  if (!in.read(head, sizeof head)) return false;
  model = mark_in(head);
  const uint64_t n = number_at(head + kModelBytes, 8);
  if (n > kMostSaved) return false;
  tokens.clear();
  char id[4];
  while (tokens.size() < n && in.read(id, sizeof id)) {
    tokens.push_back(static_cast<int32_t>(number_at(id, sizeof id)));
  }
  return tokens.size() == n;
}

uint64_t hash_of(const std::string& model, const std::vector<int32_t>& tokens) {
  std::string bytes = model;
  for (const int32_t token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(static_cast<uint32_t>(token) >> shift & 0xff);
    }
  }
  return hash_of(bytes);
}

bool begins_with(const std::vector<int32_t>& text, const std::vector<int32_t>& beginning) {
  return beginning.size() <= text.size() &&
         std::equal(beginning.begin(), beginning.end(), text.begin());
}

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw CallError(MOE_ERR_IO, path.string() + ": " + what);
}

// How a saved session of the model begins.
std::string model_mark(moe_session* witness) {
  std::string bytes;
  auto writer = MOE_INIT(moe_writer);
  writer.user = &bytes;
  writer.write = [](void* user, const void* from, size_t n) {
    static_cast<std::string*>(user)->append(static_cast<const char*>(from), n);
    return true;
  };
  moe_error error;
  check(moe_session_save(witness, &writer, &error), error);
  bytes.resize(std::max(bytes.size(), kModelBytes));
  return mark_in(bytes.data());
}

/// A file beside the one that it becomes, for its user alone. It is removed unless it gets its
/// name.
class NewFile {
 public:
  NewFile(const fs::path& path, uint64_t most_bytes)
      : path_(path),
        part_(path.string() + kPart + std::to_string(std::random_device{}())),
        out_(part_, std::ios::binary),
        most_bytes_(most_bytes) {
    std::error_code ignored;
    fs::permissions(part_, fs::perms::owner_read | fs::perms::owner_write, ignored);
  }
  ~NewFile() {
    out_.close();
    std::error_code ignored;
    fs::remove(part_, ignored);  // nothing, once it has its name
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  moe_writer writer() {
    auto writer = MOE_INIT(moe_writer);
    writer.user = this;
    writer.write = [](void* user, const void* bytes, size_t n) {
      return static_cast<NewFile*>(user)->write(bytes, n);
    };
    return writer;
  }
  bool too_large() const { return n_bytes_ > most_bytes_; }
  uint64_t n_bytes() const { return n_bytes_; }
  /// False if it was not written whole, or cannot have its name.
  bool take_name() {
    out_.close();
    std::error_code error;
    if (out_.good()) fs::rename(part_, path_, error);
    return out_.good() && !error;
  }

 private:
  bool write(const void* bytes, size_t n) {
    n_bytes_ += n;
    if (too_large()) return false;
    out_.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n));
    return out_.good();
  }

  const fs::path path_;
  const fs::path part_;
  std::ofstream out_;
  const uint64_t most_bytes_;
  uint64_t n_bytes_ = 0;
};

bool is_old(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - time > std::chrono::hours(1);
}

}  // namespace

StateFolder::StateFolder(const std::string& folder, uint64_t most_bytes, moe_session* witness)
    : folder_(folder), most_bytes_(most_bytes), model_(model_mark(witness)) {
  std::error_code error;
  if (fs::create_directories(folder_, error)) {
    fs::permissions(folder_, fs::perms::owner_all, error);  // texts of users are in it
  }
  if (!fs::is_directory(folder_, error)) fail(folder_, "expected a folder that can be made");
  const fs::directory_iterator entries(folder_, error);
  if (error) fail(folder_, "cannot be read: " + error.message());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == kEnding) add_file(entry.path());
    // Left by a process that was killed.
    if (name.find(kPart) != name.npos && is_old(entry.path())) fs::remove(entry.path(), error);
  }
  remove_old(0);
}

// Takes note of a file, unless it is another model's.
void StateFolder::add_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string model;
  File file;
  if (!read_text(in, model, file.tokens) || model != model_) return;
  std::error_code error;
  file.path = path;
  file.n_bytes = fs::file_size(path, error);
  file.last_use = fs::last_write_time(path, error);
  if (!error) files_.push_back(std::move(file));
}

uint64_t StateFolder::n_bytes() const {
  uint64_t n = 0;
  for (const File& file : files_) n += file.n_bytes;
  return n;
}

bool StateFolder::holds(const std::vector<int32_t>& tokens) const {
  return std::any_of(files_.begin(), files_.end(),
                     [&](const File& file) { return begins_with(file.tokens, tokens); });
}

void StateFolder::save(moe_session* session, const std::vector<int32_t>& tokens) {
  char name[64];
  std::snprintf(name, sizeof name, "%016" PRIx64 "%s", hash_of(model_, tokens), kEnding);
  const fs::path path = folder_ / name;
  NewFile file(path, most_bytes_);
  const moe_writer writer = file.writer();
  moe_error error;
  const moe_status status = moe_session_save(session, &writer, &error);
  if (file.too_large()) return;
  if (status != MOE_ERR_IO) check(status, error);  // that is the writer's
  if (status != MOE_OK || !file.take_name()) fail(path, "cannot be written");
  for (size_t i = files_.size(); i-- > 0;) {
    if (begins_with(tokens, files_[i].tokens)) forget(i, files_[i].path != path);
  }
  remove_old(file.n_bytes());
  files_.push_back({path, tokens, file.n_bytes(), fs::file_time_type::clock::now()});
}

void StateFolder::remove_old(uint64_t room) {
  for (;;) {
    if (files_.empty() || room + n_bytes() <= most_bytes_) return;
    const auto oldest =
        std::min_element(files_.begin(), files_.end(),
                         [](const File& a, const File& b) { return a.last_use < b.last_use; });
    forget(static_cast<size_t>(oldest - files_.begin()), true);
  }
}

void StateFolder::forget(size_t file, bool from_disk) {
  std::error_code ignored;
  if (from_disk) fs::remove(files_[file].path, ignored);
  files_.erase(files_.begin() + static_cast<std::ptrdiff_t>(file));
}

bool StateFolder::load(size_t index, moe_session* session) {
  File& file = files_[index];
  std::ifstream in(file.path, std::ios::binary);
  std::string model;
  std::vector<int32_t> tokens;
  const bool same = read_text(in, model, tokens) && model == model_ && tokens == file.tokens;
  auto reader = MOE_INIT(moe_reader);
  reader.size = file.n_bytes;
  reader.user = &in;
  reader.read = [](void* user, uint64_t offset, void* to, size_t n) {
    auto& from = *static_cast<std::ifstream*>(user);
    from.seekg(static_cast<std::streamoff>(offset));
    from.read(static_cast<char*>(to), static_cast<std::streamsize>(n));
    return from.good();
  };
  moe_error error;
  const moe_status status = same ? moe_session_load(session, &reader, &error) : MOE_ERR_IO;
  if (status == MOE_OK) {
    file.last_use = fs::file_time_type::clock::now();
    std::error_code ignored;
    fs::last_write_time(file.path, file.last_use, ignored);
    return true;
  }
  (void)moe_session_rewind(session, 0, &error);
  forget(index, status == MOE_ERR_CORRUPT || status == MOE_ERR_FORMAT);
  return false;
}

}  // namespace moe_serve
