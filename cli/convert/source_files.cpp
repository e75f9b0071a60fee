// SPDX-License-Identifier: MIT
// Lists a folder's files that matter, and hashes their names, sizes and content.
#include "cli/convert/source_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/common.h"
#include "cli/io/progress.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moe_cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashedBytes = size_t{4} << 20;

bool is_read_by_the_converter(const fs::path& file) {
  static const char* const kEndings[] = {".json",  ".safetensors", ".model",
                                         ".jinja", ".txt",         ".tiktoken"};
  return std::find(std::begin(kEndings), std::end(kEndings), file.extension()) !=
         std::end(kEndings);
}

// Folders of the modules of sentence-transformers: "1_Pooling".
bool is_module(const std::string& name) {
  return name.size() > 2 && std::isdigit(static_cast<unsigned char>(name[0])) != 0 &&
         name.find('_') < name.size();
}

CallError unreadable(const std::string& path, int reason) {
  return {MOE_ERR_IO, path + ": cannot be read: " + std::strerror(reason)};
}

int64_t nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

SourceFile look_at(const fs::path& path, const std::string& name) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) throw unreadable(path, errno);
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  return {.name = name,
          .path = error ? path.string() : whole.string(),
          .bytes = static_cast<uint64_t>(info.st_size),
          .changed_ns = nanoseconds(info.st_mtim),
          .status_ns = nanoseconds(info.st_ctim),
          .inode = info.st_ino};
}

// `before`: the names of a module's files begin with its folder's.
void add_files_of(const fs::path& folder, const std::string& before,
                  std::vector<SourceFile>* files) {
  std::error_code error;
  std::error_code unknown;  // of a link to nothing, which is no file
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (before.empty() && is_module(name) && at->is_directory(unknown)) {
      add_files_of(at->path(), name + "/", files);
    } else if (is_read_by_the_converter(name) && at->is_regular_file(unknown)) {
      files->push_back(look_at(at->path(), before + name));
    }
  }
  if (error) throw unreadable(folder, error.value());
}

std::vector<SourceFile> files_of_folder(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::exists(folder / "config.json", unknown)) {
    if (unknown) throw unreadable(folder, unknown.value());
    std::string text = folder.string() +
                       ": a folder without config.json; expected a model file (.moe), the folder "
                       "of a checkpoint, or a GGUF file";
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() != ".gguf") continue;
      throw CallError(MOE_ERR_ARGUMENT, text + ", such as " + at->path().string());
    }
    throw CallError(MOE_ERR_ARGUMENT, text);
  }
  std::vector<SourceFile> files;
  add_files_of(folder, "", &files);
  return files;
}

// NAME-00002-of-00003.gguf: the number of parts, 1 for any other name.
int parts_of(const std::string& name, std::string* stem) {
  constexpr size_t kLength = std::char_traits<char>::length("-00001-of-00003.gguf");
  int part = 0, parts = 0, end = 0;
  if (name.size() <= kLength) return 1;
  const char* tail = name.c_str() + name.size() - kLength;
  const bool split = std::sscanf(tail, "-%5d-of-%5d.gguf%n", &part, &parts, &end) == 2 &&
                     end == static_cast<int>(kLength) && parts > 0;
  *stem = name.substr(0, name.size() - kLength);
  return split ? parts : 1;
}

std::vector<SourceFile> files_of_gguf(const fs::path& path) {
  std::string stem;
  const int parts = parts_of(path.filename(), &stem);
  if (parts == 1) return {look_at(path, path.filename())};
  std::vector<SourceFile> files;
  for (int i = 1; i <= parts; ++i) {
    char tail[32];
    std::snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", i, parts);
    const fs::path part = path.parent_path() / (stem + tail);
    std::error_code error;
    if (fs::exists(part, error)) files.push_back(look_at(part, part.filename()));
  }
  return files;
}

struct StateDeleter {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

bool is_checkpoint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return true;
  if (!fs::is_regular_file(path, error)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

std::vector<SourceFile> source_files(const std::string& path) {
  std::error_code error;
  std::vector<SourceFile> files =
      fs::is_directory(path, error) ? files_of_folder(path) : files_of_gguf(path);
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  return files;
}

std::string content_hash(const std::vector<SourceFile>& files, const std::string& secret,
                         const std::string& prefix) {
  const std::unique_ptr<XXH3_state_t, StateDeleter> state(XXH3_createState());
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset_withSecret(state.get(), secret.data(), secret.size());
  const auto add = [&](const std::string& text) {  // with its end, so that texts cannot merge
    XXH3_128bits_update(state.get(), text.c_str(), text.size() + 1);
  };
  add(prefix);
  uint64_t all = 0, done = 0;
  for (const SourceFile& file : files) all += file.bytes;
  Progress progress(true);
  std::string part(kHashedBytes, '\0');
  for (const SourceFile& file : files) {
    add(file.name);
    add(std::to_string(file.bytes));
    std::ifstream in(file.path, std::ios::binary);
    uint64_t read = 0;
    while (in.read(part.data(), static_cast<std::streamsize>(part.size())) || in.gcount() > 0) {
      XXH3_128bits_update(state.get(), part.data(), static_cast<size_t>(in.gcount()));
      read += static_cast<uint64_t>(in.gcount());
      if (!Progress::callback(&progress, done + read, all, "look for an earlier conversion")) {
        throw CallError(MOE_ERR_CANCELLED, "interrupted");
      }
    }
    if (read != file.bytes) throw unreadable(file.path, in.bad() ? errno : EIO);
    done += read;
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace moe_cli
