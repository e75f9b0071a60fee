// SPDX-License-Identifier: MIT
#pragma once
// A GGUF file as a `transformers` checkpoint: with its tensor names and documents, so that the
// importers of src/convert/arch can read both.

#include <functional>

#include "formats/import/checkpoint.h"
#include "formats/import/failure.h"

namespace moe {

struct SourceOptions {
  std::vector<std::string> ignored = {};  // keys
  bool allow_zeros = false;               // at the end of a file (zero_tail.h)
  bool i2_s_arm = false;                  // I2_S in blocks of 64 (packed/bitnet.h)
};

/// Opens a folder or a GGUF file; the latter with renamed tensors and generated config.json,
/// tokenizer.json and so on. Throws MOE_ERR_UNSUPPORTED, naming an unknown architecture, key or
/// tokenizer, and what check_zero_tails() throws. step() is called from time to time and may throw
/// to stop.
Checkpoint open_checkpoint(
    const std::string& path, const std::function<void()>& step = [] {},
    const SourceOptions& options = {});

/// config.json of the file's metadata and tensors (which still have their GGUF names).
Json gguf_config(const Checkpoint& checkpoint);

/// Where a GGUF file has what config.json calls `key`, for errors: "PATH: key ARCH.KEY", or the
/// same with `key` if it is derived. Empty for a folder.
std::string place_in_gguf(const Checkpoint& checkpoint, const std::string& key);

/// The name of `key` of config.json in a GGUF file, behind "ARCH."; empty if it is derived.
std::string gguf_key(const std::string& key);

/// An error in the words of the file: its path, keys and tensors, where `status` names those that
/// open_checkpoint made from them, and what can be done. Unchanged for a folder.
Status in_gguf_words(const Checkpoint& checkpoint, const Status& status);

/// f(), whose Failures are in the words of the file.
template <class F>
auto in_words_of(const Checkpoint& checkpoint, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Failure& failure) {
    throw Failure(in_gguf_words(checkpoint, failure.status()));
  }
}

/// Whether a GGUF file of this general.architecture can be read.
bool gguf_reads(std::string_view architecture);

/// The `transformers` name of a tensor in a GGUF file of this general.architecture; unknown names
/// are unchanged.
std::string gguf_tensor_name(const std::string& name, std::string_view architecture);

/// The name in such a file of a tensor of that name; other names are unchanged. Experts that are
/// several tensors elsewhere are one.
std::string stored_tensor_name(const std::string& name, std::string_view architecture);

/// The tokens that end a text or a turn: those that keys name, then those known by their text.
Json gguf_stop_ids(const JsonNode& metadata);

/// tokenizer.json; null if the file has no tokenizer. `path` names the file in errors; warn() gets
/// what is unusual, a sentence each.
Json gguf_tokenizer(
    const Json& metadata, const std::function<void()>& step = [] {},
    const std::string& path = "GGUF",
    const std::function<void(const std::string&)>& warn = [](const std::string&) {});

/// Leaves out the ids of special tokens that are -1, in whichever type, with a warning, and those
/// beyond the vocabulary that nothing reads; refuses the others, naming the key.
void check_special_ids(Checkpoint* checkpoint);

}  // namespace moe
