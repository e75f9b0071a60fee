#pragma once
// A GGUF file as a checkpoint of `transformers`: the same tensor names, and the documents that
// would lie beside them, so that the importers of src/convert/arch read both.

#include <functional>

#include "formats/import/checkpoint.h"

namespace moe {

/// Opens a folder or a GGUF file; the latter with tensors renamed and config.json, tokenizer.json
/// and so on put in place. Throws MOE_ERR_UNSUPPORTED, naming it, for an architecture, a key or a
/// tokenizer that is not known. step() is called now and then and may throw, which ends the work.
/// `ignored`: keys that are taken for missing.
Checkpoint open_checkpoint(
    const std::string& path, const std::function<void()>& step = [] {},
    const std::vector<std::string>& ignored = {});

/// config.json of the file's metadata and tensors (which still have their GGUF names).
Json gguf_config(const Checkpoint& checkpoint);

/// The name in `transformers` of a GGUF tensor; unknown ones stay as they are. `sandwich`: blocks
/// have norms on both sides.
std::string gguf_tensor_name(const std::string& name, bool sandwich = false);

/// tokenizer.json; null when the file has no tokenizer.
Json gguf_tokenizer(
    const Json& metadata, const std::function<void()>& step = [] {});

}  // namespace moe
