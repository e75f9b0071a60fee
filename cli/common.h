// SPDX-License-Identifier: MIT
#pragma once
// Shared by all subcommands: owned handles, errors, options, terminal behaviour. Results go to
// stdout, everything else to stderr. Uses only the C API.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "include/moe_c.h"

namespace moe_cli {

/// The largest --chunk; the library takes the context if that is smaller. An encoder reads a text
/// at once.
inline constexpr int kMostChunk = 4096;

/// Fill Json::object() or Json::array(), never a null value: if memory runs out while null becomes
/// one of them, its destructor crashes.
using Json = nlohmann::ordered_json;

inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

/// A failed call; main() prints the text and exits with 1 (or 130 after Ctrl-C).
struct CallError : std::runtime_error {
  CallError(moe_status status, const std::string& text) : std::runtime_error(text), code(status) {}
  moe_status code;
};

/// A wrong command line, such as incompatible options or a value out of range; main() exits with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(moe_status status, const moe_error& error);
/// The same after a call that was given the value of an option: UsageError, beginning with
/// `option`, if the call refused the value.
void check_option(moe_status status, const moe_error& error, const std::string& option);
/// Whether a call failed because of the text or the tokens that it was given.
bool blames_text(moe_status status);
/// The same as check() after a call with line `number` of a text, which an error of the line names.
void check_line(moe_status status, const moe_error& error, size_t number);
/// The error that `path` could not be written, with the reason of the last system call. Throws if
/// the process was interrupted while it wrote to stdout, "-".
CallError write_error(const std::string& path);

struct Deleter {
  void operator()(moe_env* p) const { moe_env_free(p); }
  void operator()(moe_model* p) const { moe_model_free(p); }
  void operator()(moe_session* p) const { moe_session_free(p); }
  void operator()(moe_chat* p) const { moe_chat_free(p); }
  void operator()(moe_grammar* p) const { moe_grammar_free(p); }
  void operator()(moe_generation* p) const { moe_generation_free(p); }
};
using Env = std::unique_ptr<moe_env, Deleter>;
using Model = std::unique_ptr<moe_model, Deleter>;
using Session = std::unique_ptr<moe_session, Deleter>;
using Chat = std::unique_ptr<moe_chat, Deleter>;
using Grammar = std::unique_ptr<moe_grammar, Deleter>;
using Generation = std::unique_ptr<moe_generation, Deleter>;

/// Options of every command that opens a model.
struct ModelOptions {
  std::string path;
  int threads = 0;
  std::string isa;
  std::string device = "auto";
  bool device_named = false;  // given on the command line
  std::string gpu_memory;     // "4G"
  std::string memory;         // "2G"
  bool planning = false;      // allow more memory than this machine has
  std::string io = "auto";
  bool lazy = false;
  bool map = false;
  int context = 0;
  int chunk = 0;
  std::string kv = "f16";
  int max_beam = 0;  // of an encoder-decoder's session
  std::string router;
  bool in_floats = false;  // a checkpoint is converted to floats that hold exactly its weights
  bool json = false;
  bool verbose = false;
};

/// The options of most commands, and which of them one command offers.
struct Offered {
  bool path = true;
  bool json = true;
  bool lazy = true;
};
/// Adds the machine options (threads, isa ...), --json, --verbose and the MODEL argument.
void add_model_options(CLI::App& app, ModelOptions& o, Offered offered = {});
/// The options of a command that reads a model but does not run it: MODEL, --io, --json, --verbose.
void add_reader_options(CLI::App& app, ModelOptions& o);
/// UsageError, beginning with its name, for the first option of the command line that is not among
/// `used`. Nothing is ignored: `why` says why the command has no use for it here.
void refuse_others(const CLI::App& app, const std::vector<std::string>& used,
                   const std::string& why);
/// Adds --context, --chunk, --kv and --router. The texts describe the defaults of --context and
/// --chunk.
void add_session_options(
    CLI::App& app, ModelOptions& o,
    const std::string& default_context = "the model's, at most 4096",
    const std::string& default_chunk =
        "256; 1024 on a GPU with enough memory; 32 to 4096 under a memory cap");
moe_kv_type kv_type(const ModelOptions& o);
/// The size of an element of a key or value, with --kv.
uint64_t kv_element_bytes(const ModelOptions& o);
/// The same without --kv, for encoder commands, which evaluate a whole text at once.
void add_encoder_options(CLI::App& app, ModelOptions& o);

Env open_env(const ModelOptions& o);
moe_env_info env_info(moe_env* env);
/// Converts a checkpoint that is named in place of a model file first (model_cache.h).
Model open_model(const ModelOptions& o, moe_env* env);
/// Parameters of `open_session`; also given to open_model for the memory cap.
moe_session_params session_params(const ModelOptions& o);
/// Throws UsageError if --context is more than the model's.
void check_context(const ModelOptions& o, const moe_model* model);
moe_model_info model_info(const moe_model* model);
moe_model_layer_info layer_info(const moe_model* model, int32_t layer);
/// The text as the library reads it; UsageError.
moe_router parse_router(const std::string& text);
/// All that the library lists: "amx, avx2, scalar".
std::string listed_names(const char* (*name)(size_t index));
/// Throws if the model is not a decoder: `command` continues texts.
void check_decoder(const ModelOptions& o, const moe_model* model, const char* command);
/// True if the router of the options may skip experts: a session then counts its routing.
bool may_skip(const ModelOptions& o);

/// Creates the session, sets its router, and makes Ctrl-C cancel it.
Session open_session(const ModelOptions& o, moe_model* model);

/// Throws UsageError for an id of --tokens that is not in the vocabulary.
void check_ids(const std::vector<int32_t>& ids, const moe_model* model);

/// Adds --no-bos, the same for every command that reads a text. It excludes --tokens, if the
/// command has that already.
void add_no_bos(CLI::App& app, bool& no_bos);
/// MOE_ENCODE_* of these options.
uint32_t encode_flags(bool no_bos, bool special = false);
/// Tokens of `text`; an error if the model has no tokenizer.
std::vector<int32_t> encode(const moe_model* model, const std::string& text, uint32_t flags);
std::string decode(const moe_model* model, const std::vector<int32_t>& tokens, uint32_t flags);

double now_seconds();
/// Throws CallError after Ctrl-C while nobody reads it; a failed write leaves std::cout bad.
void print_json(const Json& json);

}  // namespace moe_cli
