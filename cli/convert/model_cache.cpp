// SPDX-License-Identifier: MIT
// Converts a checkpoint once under a lock and finds it again by its key; lists and removes
// conversions.
#include "cli/convert/model_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "cli/convert/convert.h"
#include "cli/convert/source_files.h"
#include "cli/io/interrupt.h"
#include "cli/io/units.h"
#include "cli/version.h"

namespace moe_cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSecretBytes = 192;
constexpr size_t kKeyLength = 32;

CallError cache_error(const std::string& path, int reason) {
  return {MOE_ERR_IO, path + ": " + std::strerror(reason) +
                          "; $XDG_CACHE_HOME chooses another folder for converted checkpoints, and "
                          "'moe convert SRC DST' needs none"};
}

// Closes the file, which ends a lock on it.
struct File {
  int fd = -1;
  explicit File(int opened) : fd(opened) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd >= 0) close(fd);
  }
};

// One conversion at a time: the second of two equal ones then finds the result of the first.
class Lock {
 public:
  explicit Lock(const std::string& folder)
      : file_(open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (file_.fd < 0) throw cache_error(folder + "/lock", errno);
    bool told = false;
    while (flock(file_.fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) throw cache_error(folder + "/lock", errno);
      if (!told) std::cerr << "moe: waiting for another conversion into " << folder << "\n";
      told = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      stop_if_interrupted();
    }
  }

 private:
  File file_;
};

// Random bytes of this cache, made with the first conversion. The caller holds the lock.
std::string secret_of(const std::string& folder) {
  const std::string path = folder + "/secret";
  std::ifstream in(path, std::ios::binary);
  std::string secret((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (secret.size() == kSecretBytes) return secret;
  secret.resize(kSecretBytes);
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw cache_error("random bytes", errno);
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) throw cache_error(path, errno);
  const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.fd < 0 || write(file.fd, secret.data(), secret.size()) != kSecretBytes) {
    throw cache_error(path, errno);
  }
  return secret;
}

std::string with_ending(const std::string& key, const char* ending) {
  return cache_folder() + "/" + key + ending;
}

Json to_json(const std::vector<SourceFile>& files) {
  Json list = Json::array();
  for (const SourceFile& f : files) {
    list.push_back({{"name", f.name},
                    {"path", f.path},
                    {"bytes", f.bytes},
                    {"changed_ns", f.changed_ns},
                    {"status_ns", f.status_ns},
                    {"inode", f.inode}});
  }
  return list;
}

// The content of KEY.json; null if it is missing or damaged.
Json description(const std::string& key) {
  std::ifstream in(with_ending(key, ".json"));
  return in ? Json::parse(in, nullptr, false) : Json();
}

std::string text_of(const Json& j, const char* key) {
  const auto found = j.is_object() ? j.find(key) : j.end();
  return found != j.end() && found->is_string() ? found->get<std::string>() : "";
}

// Without a slash at its end.
std::string place_of(const std::string& source) {
  std::error_code error;
  const fs::path path = fs::absolute(source, error).lexically_normal();
  if (error) throw CallError(MOE_ERR_IO, source + ": " + error.message());
  return path.has_filename() ? path.string() : path.parent_path().string();
}

// The same through links, where they lead somewhere.
std::string real_place_of(const std::string& source) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(place_of(source), error);
  return error ? place_of(source) : path.string();
}

// The program and what it makes of a checkpoint: a conversion by another one is not used.
std::string maker(CachedWeights weights) {
  return build_name() + (weights == CachedWeights::kSource ? ", in floats" : "");
}

void describe(const std::string& key, const std::string& source, CachedWeights weights,
              const std::vector<SourceFile>& files) {
  const Json j = {{"source", place_of(source)}, {"moe", maker(weights)}, {"files", to_json(files)}};
  const std::string path = with_ending(key, ".json");
  const std::string part = path + ".new";  // the caller holds the lock
  {
    std::ofstream out(part, std::ios::trunc);
    // Names need not be UTF-8.
    out << j.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
    if (!out.flush()) throw cache_error(part, errno);
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) throw cache_error(path, errno);
}

void mark_as_used(const std::string& key) {
  utimensat(AT_FDCWD, with_ending(key, ".moe").c_str(), nullptr, 0);  // read-only: not listed first
}

// The conversion of files that have not changed since, without reading them.
std::optional<std::string> known_key(const std::vector<SourceFile>& files, CachedWeights weights) {
  const Json wanted = to_json(files);
  for (const CachedModel& model : cached_models()) {
    const Json j = description(model.key);
    if (text_of(j, "moe") != maker(weights)) continue;
    const auto found = j.find("files");
    if (found != j.end() && *found == wanted) return model.key;
  }
  return std::nullopt;
}

uint64_t bytes_of(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) throw cache_error(path, errno);
  return static_cast<uint64_t>(info.st_size);
}

// Restores what happens where nobody reads our output: convert() ignores it.
class PipeSignal {
 public:
  PipeSignal() { sigaction(SIGPIPE, nullptr, &before_); }
  PipeSignal(const PipeSignal&) = delete;
  PipeSignal& operator=(const PipeSignal&) = delete;
  ~PipeSignal() { sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

bool is_key(std::string_view name) {
  return name.size() == kKeyLength &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A conversion that was killed leaves ".KEY.moe.moe-XXXXXX" and "KEY.json.new", or "KEY.json"
// alone.
bool is_leftover(const std::string& folder, std::string_view name) {
  const std::string_view key = name.substr(name.starts_with('.') ? 1 : 0, kKeyLength);
  if (!is_key(key)) return false;
  if (name.starts_with('.')) return name.substr(1 + kKeyLength).starts_with(".moe.moe-");
  const std::string_view ending = name.substr(kKeyLength);
  if (ending == ".json.new") return true;
  const std::string model = folder + "/" + std::string(key) + ".moe";
  return ending == ".json" && access(model.c_str(), F_OK) != 0 && errno == ENOENT;
}

// The caller holds the lock: no conversion goes on.
void remove_leftovers(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (is_leftover(folder, at->path().filename().string())) found.push_back(at->path());
  }
  for (const std::string& path : found) (void)unlink(path.c_str());
}

void convert_once(const std::string& source, CachedWeights weights, const std::string& target) {
  ConvertOptions o;
  if (weights == CachedWeights::kSource) o.weights = "source";
  o.source = source;
  o.destination = target;
  std::cerr << "moe: converting " << source
            << ", once; later runs use the result ('moe cache' lists it, 'moe convert' chooses "
               "formats)\n";
  const PipeSignal restored;
  const std::vector<std::string> reports = convert(o);
  print_conversion_warnings(o, reports);
  std::cerr << "moe: converted into " << target << ", " << format_bytes(bytes_of(target)) << "\n";
}

std::string converted(const std::string& source, CachedWeights weights) {
  const std::vector<SourceFile> files = source_files(source);
  const std::string folder = cache_folder();
  if (const auto key = known_key(files, weights)) {
    mark_as_used(*key);
    return with_ending(*key, ".moe");
  }
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (error) throw cache_error(fs::path(folder).parent_path(), error.value());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw cache_error(folder, errno);
  const Lock lock(folder);
  remove_leftovers(folder);
  const std::string key = content_hash(files, secret_of(folder), maker(weights));
  const std::string target = with_ending(key, ".moe");
  if (!fs::exists(target, error)) {
    convert_once(source, weights, target);
    if (source_files(source) != files) {
      (void)unlink(target.c_str());
      throw CallError(MOE_ERR_IO, source + ": changed while it was converted; try again");
    }
  }
  describe(key, source, weights, files);
  mark_as_used(key);
  return target;
}

}  // namespace

std::string runnable_file(const std::string& path, CachedWeights weights) {
  using Request = std::pair<std::string, CachedWeights>;
  static std::map<Request, std::string> found;  // a command may open a model more than once
  static std::mutex mutex;                      // guards it; servers open models in a thread
  {
    const std::lock_guard lock(mutex);
    const auto known = found.find({path, weights});
    // The cache may have been cleared since, while a server runs.
    if (known != found.end() && access(known->second.c_str(), F_OK) == 0) return known->second;
  }
  const std::string file = is_checkpoint(path) ? converted(path, weights) : path;
  const std::lock_guard lock(mutex);
  found[{path, weights}] = file;
  return file;
}

std::string cache_folder() {
  const char* base = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (base != nullptr && base[0] == '/') {  // the specification says to ignore any other
    folder = std::string(base) + "/moe";
  } else if (home != nullptr && home[0] == '/') {
    folder = std::string(home) + "/.cache/moe";
  } else {
    throw CallError(MOE_ERR_IO,
                    "no folder for converted checkpoints: neither $XDG_CACHE_HOME nor $HOME is an "
                    "absolute path; 'moe convert SRC DST' needs none");
  }
  struct stat info;
  if (stat(folder.c_str(), &info) == 0 && info.st_uid != geteuid()) {
    throw CallError(MOE_ERR_IO, folder + ": belongs to another user; set $XDG_CACHE_HOME");
  }
  return folder;
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  std::error_code error;
  for (fs::directory_iterator at(cache_folder(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string key = at->path().stem();
    if (at->path().extension() != ".moe" || !is_key(key)) continue;
    struct stat info;
    if (lstat(at->path().c_str(), &info) != 0) continue;  // somebody removes it
    if (!S_ISREG(info.st_mode)) continue;
    models.push_back({key, text_of(description(key), "source"), static_cast<uint64_t>(info.st_size),
                      info.st_mtim.tv_sec});
  }
  std::sort(models.begin(), models.end(),
            [](const CachedModel& a, const CachedModel& b) { return a.used > b.used; });
  return models;
}

bool is_of(const CachedModel& model, const std::string& source) {
  if (model.source.empty()) return false;
  return place_of(source) == model.source || real_place_of(source) == real_place_of(model.source);
}

void clear_leftovers() {
  const std::string folder = cache_folder();
  if (access(folder.c_str(), F_OK) != 0) return;
  const Lock lock(folder);
  remove_leftovers(folder);
}

void remove_cached(const CachedModel& model) {
  for (const char* ending : {".moe", ".json"}) {
    const std::string path = with_ending(model.key, ending);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) throw cache_error(path, errno);
  }
}

}  // namespace moe_cli
