// SPDX-License-Identifier: MIT
#pragma once
// The file of a calibration's statistics: safetensors. For every input (keys.h) of n channels:
//
//   KEY.tokens          I64 (1)  tokens that reached it; 0: it has no other tensors
//   KEY.mean_squares    F32 (n)
//   KEY.second_moments  F32 (m)  means of x_i x_j, as SecondMoments orders them: the lower triangle
//                                of each block of kMomentBlock channels, by rows; absent if there
//                                was no room for them
//
// __metadata__ has the strings "format" ("moe statistics"), "version" ("2"), "model" (identity()),
// "tokens" and "perplexity" (null: not finite) of the text, and "xxh64": of the tensors' bytes, all
// tokens first, then all mean squares, then all second moments, each in the order of the inputs;
// then of "tokens" and "perplexity".

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/import/file.h"
#include "formats/import/json_value.h"
#include "formats/import/source_tensor.h"
#include "formats/moe/stream_hash.h"
#include "formats/moe/writer.h"
#include "src/convert/calibration/input_statistics.h"
#include "src/convert/calibration/keys.h"

namespace moe {

/// The text that was read: its length and the model's perplexity.
struct TextRead {
  uint64_t n_tokens = 0;
  double perplexity = 0;  // of the source on the text; 0: an encoder
};

/// Whether a StatisticsWriter wrote the start of this file.
bool is_saved_statistics(const InputFile& file);

/// A hash of the configuration, of the names and shapes of all matrices, and of values throughout
/// every tensor: 256 of each 2^18, the first and the last among them. `tick` is called regularly
/// and may throw.
uint64_t identity(const ModelConfig& config, const Plan& plan, const Checkpoint& checkpoint,
                  const std::function<void()>& tick);

class StatisticsWriter {
 public:
  /// `sink` must outlive this. Throws MOE_ERR_RANGE if there are too many inputs for a file.
  StatisticsWriter(ModelSink& sink, std::vector<InputKey> inputs, uint64_t identity);

  /// `find` returns the sums of an input. MOE_ERR_NON_FINITE, naming it, if f32 cannot hold them.
  void put_inputs(const std::function<const InputSums&(const std::string& key)>& find);
  /// After put_inputs(), in the order of the inputs, of inputs with tokens.
  void put_moments(const std::string& key, const SecondMoments& moments);
  /// Writes the header. Does not commit the sink.
  void finish(const TextRead& text);

 private:
  void begin(const std::string& key, const char* kind, const char* type, uint64_t n);
  void put_means(const std::string& key, const float* means, size_t n);
  void put(const void* bytes, size_t n);

  ModelSink& sink_;
  const std::vector<InputKey> inputs_;
  const uint64_t identity_;
  uint64_t header_bytes_ = 0;  // reserved, in front of the tensors
  std::string entries_;
  uint64_t position_ = 0;  // after the header
  StreamHash hash_;
};

class StatisticsFile {
 public:
  /// Checks everything except for the values: the version (MOE_ERR_VERSION), that it was saved for
  /// this model (MOE_ERR_ARGUMENT), then names, types and shapes (MOE_ERR_FORMAT).
  StatisticsFile(const std::string& path, std::vector<InputKey> inputs, uint64_t identity);

  /// Reads all of it: MOE_ERR_NON_FINITE, MOE_ERR_RANGE (negative), MOE_ERR_CORRUPT (checksum).
  /// `advance` receives the bytes read since the last call, and may throw.
  void check_values(const std::function<void(uint64_t)>& advance) const;

  uint64_t n_bytes() const { return file_.size(); }
  const std::vector<InputKey>& inputs() const { return inputs_; }
  const TextRead& text() const { return text_; }
  bool has_moments(const std::string& key) const;
  /// Without moments. Values are checked again, as the file may have changed.
  std::shared_ptr<InputSums> sums(const InputKey& input) const { return sums(input, nullptr); }
  /// The moments of an input that has them.
  std::unique_ptr<SecondMoments> moments(const InputKey& input) const {
    return moments(input, nullptr);
  }

 private:
  struct Reading {
    StreamHash hash;
    const std::function<void(uint64_t)>& advance;
  };

  void read_metadata(const Json& metadata, uint64_t identity);
  void check_tensors();
  const SourceTensor* find(const std::string& key, const char* kind) const;
  const SourceTensor& expect(const std::string& key, const char* kind, const char* type,
                             uint64_t n) const;
  std::shared_ptr<InputSums> sums(const InputKey& input, Reading* reading) const;
  std::unique_ptr<SecondMoments> moments(const InputKey& input, Reading* reading) const;
  template <class F>
  void each_piece(const SourceTensor& tensor, Reading* reading, F&& use) const;

  const InputFile file_;
  const std::vector<InputKey> inputs_;
  std::map<std::string, SourceTensor> tensors_;
  std::map<std::string, uint64_t> tokens_;
  std::string checksum_;
  std::string hashed_;  // of the metadata
  TextRead text_;
};

}  // namespace moe
