#include "src/convert/destination.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "formats/import/gguf.h"
#include "formats/moe/header.h"

namespace moe {
namespace {

// Files of an earlier conversion in the folder are not part of the checkpoint.
bool is_model_or_empty(const std::string& path, const struct stat& info) {
  if (info.st_size == 0) return true;
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) < sizeof kMagic) return false;
  uint8_t start[sizeof kMagic];
  InputFile(path).read(0, start, sizeof start);
  return std::memcmp(start, kMagic, sizeof kMagic) == 0;
}

std::vector<std::string> files_of(const std::string& source) {
  std::vector<std::string> files = gguf_parts(source);
  files.push_back(source);
  for (const std::string& name : names_in_folder(source)) files.push_back(source + "/" + name);
  return files;
}

}  // namespace

void check_destination(const std::string& source, const std::string& destination) {
  for (const std::string& target : {destination, destination + ".partial"}) {
    struct stat written;
    if (stat(target.c_str(), &written) != 0) continue;
    for (const std::string& file : files_of(source)) {
      struct stat read;
      if (stat(file.c_str(), &read) != 0 || S_ISDIR(read.st_mode)) continue;
      if (read.st_dev != written.st_dev || read.st_ino != written.st_ino) continue;
      if (is_model_or_empty(target, written)) break;
      fail(MOE_ERR_ARGUMENT,
           "%.250s: this is %.250s of the checkpoint, which writing it would destroy; expected "
           "another destination",
           target.c_str(), file.c_str());
    }
  }
}

void check_separate(const std::string& statistics, const std::string& destination) {
  std::error_code error;
  const auto place = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(path, error);
  };
  if (destination.empty() || place(statistics) != place(destination)) return;
  fail(MOE_ERR_ARGUMENT, "%.250s: expected different files for statistics and the model",
       statistics.c_str());
}

}  // namespace moe
