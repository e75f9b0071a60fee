// SPDX-License-Identifier: MIT
#pragma once
// String streams that throw std::bad_alloc when memory runs out; others end early, without a word.

#include <sstream>
#include <string>

namespace moe_cli {

class StrictReader : public std::istringstream {
 public:
  explicit StrictReader(const std::string& text) : std::istringstream(text) {
    exceptions(std::ios::badbit);
  }
};

class StrictWriter : public std::ostringstream {
 public:
  StrictWriter() { exceptions(std::ios::badbit); }
};

}  // namespace moe_cli
