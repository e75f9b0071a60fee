// SPDX-License-Identifier: MIT
// Compares files by identity and not by path, and refuses to write over a file that no conversion
// wrote.
#include "src/convert/destination.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "formats/import/gguf_parts.h"
#include "formats/moe/header.h"
#include "src/base/os/file.h"
#include "src/convert/calibration/saved_statistics.h"

namespace moe {
namespace {

bool is_model(const InputFile& file) {
  uint8_t start[sizeof kMagic];
  if (file.size() < sizeof start) return false;
  file.read(0, start, sizeof start);
  return std::memcmp(start, kMagic, sizeof kMagic) == 0;
}

// Files of an earlier conversion in the folder are not part of the checkpoint.
bool is_output_or_empty(const std::string& path, const FileInfo& info) {
  if (info.size == 0) return true;
  if (info.kind != FileKind::kRegular) return false;
  const InputFile file(path);
  return is_model(file) || is_saved_statistics(file);
}

std::vector<std::string> files_of(const std::string& source) {
  std::vector<std::string> files = gguf_parts(source);
  files.push_back(source);
  for (const std::string& name : names_in_folder(source)) files.push_back(source + "/" + name);
  return files;
}

bool is_one_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const auto place = [&](const std::string& path) {
    const fs::path whole =
        fs::absolute(path, error);  // a relative one may have no part that exists
    const fs::path found = fs::weakly_canonical(whole, error);
    return error ? whole : found;  // opening it reports the error
  };
  return place(a) == place(b);
}

}  // namespace

void check_destination(const std::string& source, const std::string& destination) {
  FileInfo written;
  if (path_info(destination.c_str(), &written) != 0) return;
  for (const std::string& file : files_of(source)) {
    FileInfo read;
    if (path_info(file.c_str(), &read) != 0 || read.kind == FileKind::kFolder) continue;
    if (!read.is_same_file(written)) continue;
    if (is_output_or_empty(destination, written)) break;
    fail(MOE_ERR_ARGUMENT,
         "%.250s: this would overwrite %.250s of the checkpoint; expected another destination",
         destination.c_str(), file.c_str());
  }
}

void check_separate(const std::string& statistics, const std::string& destination) {
  if (destination.empty() || !is_one_file(statistics, destination)) return;
  fail(MOE_ERR_ARGUMENT, "%.250s: expected different files for statistics and the model",
       statistics.c_str());
}

void check_replaces(const std::string& destination, Output kind) {
  FileInfo written;
  if (path_info(destination.c_str(), &written) != 0) return;
  if (written.kind != FileKind::kRegular || written.size == 0) return;
  const InputFile file(destination);
  const bool model = kind == Output::kModel;
  if (model ? is_model(file) : is_saved_statistics(file)) return;
  fail(MOE_ERR_ARGUMENT, "%.250s: this file exists and is not %s; expected another destination",
       destination.c_str(), model ? "a model" : "a file of statistics");
}

}  // namespace moe
