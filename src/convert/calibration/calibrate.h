#pragma once
// What the matrices of a model are multiplied with when it reads a text: for each input the mean of
// its squares, which says how much an error of its weights matters.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "formats/moe/writer.h"
#include "src/convert/plan.h"

namespace moe {

class InputStatistics {
 public:
  /// Mean squares (cols) of a matrix's inputs over the tokens that reached it, divided by their own
  /// mean. Null: none did, or it is no linear matrix. `name` as in Slot::short_name().
  const std::vector<float>* find(const std::string& name) const;
  /// Tokens that reached it.
  uint64_t n_tokens(const std::string& name) const;

  void put(const std::string& name, uint64_t n_tokens, std::vector<float> importance);

 private:
  struct Inputs {
    uint64_t n_tokens = 0;
    std::vector<float> importance;
  };
  std::map<std::string, Inputs> inputs_;
};

struct CalibrationRun {
  InputStatistics inputs;
  uint64_t n_tokens = 0;  // of the text
  uint64_t n_experts = 0;
  uint64_t n_unreached = 0;  // of them
  double perplexity = 0;     // of the source on the text; 0: of an encoder
};

/// A text as the model reads it.
struct CalibrationText {
  std::vector<int32_t> prefix;  // in front of every window
  std::vector<int32_t> tokens;
};

/// Runs the model of `n_bytes` that `file` holds, complete and in float formats, on all CPUs over
/// the text, in windows of at most 512 tokens. `plan`: what was written. `memory_cap`: bytes for
/// the model and its session, of which experts get what is left; 0: three quarters of what the
/// machine has where the model would take more than half. `progress` is told tokens; false:
/// MOE_ERR_CANCELLED.
CalibrationRun calibrate(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                         const CalibrationText& text, uint64_t memory_cap,
                         const std::function<bool(uint64_t done, uint64_t total)>& progress);

}  // namespace moe
