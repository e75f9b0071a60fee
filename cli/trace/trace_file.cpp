// SPDX-License-Identifier: MIT
// Reads a trace's lines and checks them: columns, order, experts in range.
#include "cli/trace/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "cli/common.h"
#include "cli/io/input_file.h"

namespace moe_cli {
namespace {

constexpr const char* kColumns = "phase,step,layer,slot,expert,weight";
constexpr size_t kLongestLine = 4096;
constexpr long kMostLayers = 65536;
constexpr long kMostExperts = 65536;
constexpr long kMostSteps = 1L << 30;

class Reader {
 public:
  explicit Reader(const std::string& path) : in_(path) {}

  Trace read() {
    read_sizes();
    if (!next() || line_ != kColumns) {
      fail(std::string("expected the columns ") + kColumns + found());
    }
    while (next()) {
      if (ended_) fail("the line has no end: the trace was cut off" + found());
      read_use();
    }
    if (trace_.uses.empty()) fail("there is no row below the columns");
    return std::move(trace_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw CallError(MOE_ERR_FORMAT, in_.name() + ":" + std::to_string(number_) + ": " + what);
  }
  std::string found() const {
    std::string text = line_.substr(0, 60);
    for (char& c : text) {
      if (c < ' ' || c > '~') c = '?';
    }
    return ", found '" + text + "'";
  }

  // The next line without its end. False at the end of the file.
  bool next() {
    ++number_;
    line_.clear();
    char c = 0;
    while (in_.get(&c) && c != '\n') {
      if (line_.size() == kLongestLine) fail("the line is longer than that of any trace");
      line_ += c;
    }
    ended_ = c != '\n';
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    return !line_.empty() || !ended_;
  }

  long size(const char* name, long most) const {
    const std::string key = std::string(" ") + name + "=";
    const size_t at = line_.find(key);
    char* end = nullptr;
    const char* text = at == std::string::npos ? "" : line_.c_str() + at + key.size();
    const long n = std::strtol(text, &end, 10);
    if (end == text || (*end != ' ' && *end != '\0') || n < 1 || n > most) {
      fail("expected '# n_layer=L n_expert=E n_expert_used=K' with numbers from 1" + found() +
           "; 'moe trace MODEL -p TEXT -o FILE' writes a trace");
    }
    return n;
  }

  void read_sizes() {
    next();
    if (line_.empty() || line_[0] != '#') size("n_layer", 0);
    trace_.n_layers = static_cast<int32_t>(size("n_layer", kMostLayers));
    trace_.n_experts = static_cast<int32_t>(size("n_expert", kMostExperts));
    trace_.n_used = static_cast<int32_t>(size("n_expert_used", trace_.n_experts));
  }

  // The number before the next comma, in 0..most.
  int32_t column(const char** at, const char* name, long most) const {
    char* end = nullptr;
    errno = 0;
    const long n = std::strtol(*at, &end, 10);
    if (end == *at || *end != ',') {
      fail(std::string("expected ") + kColumns + found());
    }
    if (errno != 0 || n < 0 || n > most) {
      fail(std::string(name) + ": expected 0.." + std::to_string(most) + ", found " +
           std::string(*at, static_cast<size_t>(end - *at)));
    }
    *at = end + 1;
    return static_cast<int32_t>(n);
  }

  void read_use() {
    const char* at = line_.c_str();
    TraceUse use{};
    use.decode = column(&at, "phase", 1) == 1;
    use.step = column(&at, "step", kMostSteps);
    use.layer = column(&at, "layer", trace_.n_layers - 1);
    use.slot = column(&at, "slot", trace_.n_used - 1);
    use.expert = column(&at, "expert", trace_.n_experts - 1);
    char* end = nullptr;
    use.weight = std::strtof(at, &end);
    if (end == at || *end != '\0' || !std::isfinite(use.weight)) {
      fail("weight: expected a number" + found());
    }
    check_slot(use);
    trace_.uses.push_back(use);
  }

  // The experts of a token in a layer are consecutive, slot by slot, each once.
  void check_slot(const TraceUse& use) {
    const bool same = !trace_.uses.empty() && trace_.uses.back().step == use.step &&
                      trace_.uses.back().layer == use.layer &&
                      trace_.uses.back().decode == use.decode;
    if (!same) chosen_.clear();
    const auto expected = static_cast<int32_t>(chosen_.size());
    if (use.slot != expected) {
      fail("slot: expected " + std::to_string(expected) + ", found " + std::to_string(use.slot));
    }
    if (std::find(chosen_.begin(), chosen_.end(), use.expert) != chosen_.end()) {
      fail("expert " + std::to_string(use.expert) + " was selected twice for one token");
    }
    chosen_.push_back(use.expert);
  }

  InputFile in_;
  std::string line_;
  size_t number_ = 0;
  bool ended_ = false;
  std::vector<int32_t> chosen_;  // for the token and layer of the last row
  Trace trace_;
};

}  // namespace

Trace read_trace(const std::string& path) { return Reader(path).read(); }

}  // namespace moe_cli
