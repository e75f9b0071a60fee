// SPDX-License-Identifier: MIT
// A whole conversion of a folder with a shard index, two shards, config.json and tokenizer.json,
// some of them changed. The input is the choice of a checkpoint, options, then changes until it
// ends. In every case the source is unchanged, no temporary file is left, and a finished file can
// be run.

#include <filesystem>
#include <memory>

#include "tests/convert/fuzz_checkpoint.h"
#include "tests/support/fuzz_env.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

/// A folder with three others: source, target, and one outside the checkpoint that must not be
/// read.
class Scratch {
 public:
  Scratch() {
    for (const char* name : {"/source", "/target", "/outside"}) fs::create_directory(path(name));
  }
  std::string path(const std::string& name) const { return folder_.path() + name; }

  /// Makes the source hold exactly these files; files that are already right are not rewritten.
  void put(const Files& files) {
    for (const auto& [name, text] : held_) {
      if (!files.contains(name)) fs::remove(path("/source/" + name));
    }
    for (const auto& [name, text] : files) {
      const auto old = held_.find(name);
      if (old == held_.end() || old->second != text) folder_.write("source/" + name, text);
    }
    held_ = files;
  }
  void put_outside(const Files& files) {
    for (const auto& [name, text] : files) folder_.write("outside/" + name, text);
  }
  /// Whether the source is unchanged since put().
  bool source_is_whole() const {
    for (const auto& [name, text] : held_) {
      if (read_file(path("/source/" + name)) != text) return false;
    }
    return names("/source") == held_.size();
  }
  size_t names(const std::string& folder) const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path(folder)), {}));
  }

 private:
  test::TempFolder folder_;
  Files held_;
};

// The library must be able to run the file that the converter wrote.
void run(const std::string& path) {
  moe_model* model = nullptr;
  moe_error error{};
  const moe_status status = moe_model_open(fuzz_env(), path.c_str(), nullptr, &model, &error);
  require(status == MOE_OK || status == MOE_ERR_MEMORY);
  if (status != MOE_OK) return;
  moe_session_params p{};
  p.struct_size = sizeof p;
  p.context = 1;
  moe_session* session = nullptr;
  if (moe_session_create(model, &p, &session, nullptr) == MOE_OK) {
    const int32_t token = 0;
    (void)moe_session_eval(session, &token, 1, MOE_ROWS_NONE, nullptr, nullptr);
  }
  moe_session_free(session);
  moe_model_free(model);
}

// A successful conversion used no shard outside its folder.
void check_index(const Files& files) {
  const auto index = files.find(kIndex);
  if (index == files.end()) return;
  const Json document = parse_json(index->second, kIndex);
  for (const auto& [name, file] : document.at("weight_map").items()) {
    require(file.get<std::string>().find('/') == std::string::npos);
  }
}

void convert(FuzzBytes& in) {
  static const std::vector<Files> checkpoints = make_checkpoints();
  static Scratch* scratch = [] {
    static Scratch made;
    made.put_outside(checkpoints[0]);
    return &made;
  }();
  static const char* const kWeights[] = {nullptr, "auto", "ternary2",  "ternary3",
                                         "int8",  "f32",  "bf16",      "f16",
                                         "",      "int9", "int8_group"};
  static const char* const kOverrides[] = {"*=f32", "layers.*.up=int8", "*=:a8", "=", "head=f16"};
  static const char* const kTargets[] = {"/target/m.moe", "/source/m.moe", "/none/m.moe",
                                         "/target"};
  Files files = checkpoints[in.below(checkpoints.size())];
  moe_convert_params p{};
  p.struct_size = sizeof p;
  p.allow_zeros = 1;  // or most inputs would end there
  p.weights = kWeights[in.below(std::size(kWeights))];
  p.n_overrides = static_cast<int32_t>(in.below(std::size(kOverrides) + 1));
  p.overrides = kOverrides;
  const uint8_t how = in.byte();
  p.compress = how & 1;
  p.verify = how & 2 ? 1 : 0;
  if ((how & 4) != 0) {
    p.calibration = "ab";
    p.n_calibration = 2;
  }
  const std::string target = scratch->path(kTargets[how < 240 ? 0 : how % 4]);
  while (!in.empty() && !files.empty()) change(in, &files);
  scratch->put(files);
  moe_error error{};
  const moe_status status =
      moe_convert(scratch->path("/source").c_str(), target.c_str(), &p, &error);
  require(status == error.code && status != MOE_ERR_INTERNAL);
  const bool written = fs::is_regular_file(target);
  require(written == (status == MOE_OK));
  if (written) {
    check_index(files);
    run(target);
    fs::remove(target);
  }
  require(scratch->source_is_whole() && scratch->names("/target") == 0 && scratch->names("") == 3);
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::fuzz_env();
  const size_t before = moe::fuzz_memory().held();
  moe::FuzzBytes in(data, size);
  moe::convert(in);
  moe::require(moe::fuzz_memory().held() == before);
  return 0;
}
