// SPDX-License-Identifier: MIT
// Reads keys from a file and compares them in constant time.
#include "cli/serve/api_keys.h"

#include <strings.h>
#include <sys/stat.h>

#include <cstring>
#include <sstream>

#include "cli/common.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

// Takes the same time wherever the texts differ, so that a key cannot be guessed byte by byte.
bool same(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<unsigned char>(difference | (a[i] ^ other));
  }
  return difference == 0;
}

}  // namespace

ApiKeys::ApiKeys(const std::string& path) {
  if (path.empty()) return;
  struct stat file {};
  if (stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & S_IROTH) != 0) {
    throw UsageError("--api-key-file " + path +
                     ": every user of this machine may read it; 'chmod 600' it");
  }
  std::istringstream lines(read_file(path, 1 << 20));
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    keys_.push_back(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
  }
  if (keys_.empty())
    throw CallError(MOE_ERR_FORMAT, path + ": expected a key in each line, found none");
}

bool ApiKeys::has(const std::string& given) const {
  bool found = false;
  for (const std::string& key : keys_) found = same(given, key) || found;
  return found;
}

bool ApiKeys::allow(const char* authorization, const char* api_key) const {
  if (!needed() || (api_key != nullptr && has(api_key))) return true;
  constexpr const char* kScheme = "Bearer ";
  const bool bearer =
      authorization != nullptr && strncasecmp(authorization, kScheme, std::strlen(kScheme)) == 0;
  return bearer && has(authorization + std::strlen(kScheme));
}

}  // namespace moe_cli
