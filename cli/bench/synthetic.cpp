// SPDX-License-Identifier: MIT
// Makes a synthetic model in memory, or in a temporary file if it would not fit.
#include "cli/bench/synthetic.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cli/help/help.h"
#include "cli/io/progress.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

constexpr uint64_t kMetadataRoom = uint64_t{8} << 20;  // on disk, in addition to the weights

// Shows progress; ends the work after Ctrl-C, or at once if the file would not fit.
struct Work {
  Progress progress{true};
  std::string folder;          // of the file; empty: in memory
  uint64_t most = UINT64_MAX;  // available bytes
  uint64_t total = 0;          // bytes of weights, known after the first call
  bool announced = false;

  static bool callback(void* user, uint64_t done, uint64_t total, const char* what);
  bool fits() const { return total <= most; }
  void announce() const;
};

void Work::announce() const {
  std::fprintf(stderr, "moe: writing a file of %s in %s\n", format_bytes(total).c_str(),
               visible(folder).c_str());
}

bool Work::callback(void* user, uint64_t done, uint64_t total, const char* what) {
  auto* work = static_cast<Work*>(user);
  work->total = total;
  if (!work->fits()) return false;
  try {
    if (!std::exchange(work->announced, true) && !work->folder.empty()) work->announce();
  } catch (const std::bad_alloc&) {  // continue unannounced
  }
  return Progress::callback(&work->progress, done, total, what);
}

moe_synthetic_params synthetic_params(const BenchOptions& o, Work* work) {
  moe_synthetic_params p{};
  p.struct_size = sizeof p;
  p.weights = o.weights.c_str();
  p.context = o.model.context;
  p.progress = Work::callback;
  p.progress_user = work;
  return p;
}

uint64_t free_on_disk(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return UINT64_MAX;  // writing reports the error
  const uint64_t bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  return bytes - std::min(bytes, kMetadataRoom);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

enum class Content : uint8_t { kOutline, kWeights };

void write_file(const BenchOptions& o, const std::string& path, Content content) {
  signal(SIGPIPE, SIG_IGN);  // if the reader of our output exits, leave nothing behind
  Work work;
  work.folder = folder_of(path);
  work.most = free_on_disk(work.folder);
  work.announced = content == Content::kOutline;
  moe_synthetic_params p = synthetic_params(o, &work);
  p.outline = content == Content::kOutline ? 1 : 0;
  moe_error error;
  const moe_status status = moe_synthetic_save(o.synthetic.c_str(), &p, path.c_str(), &error);
  if (status == MOE_ERR_CANCELLED && !work.fits()) {
    throw CallError(MOE_ERR_IO, work.folder + " has room for " + format_bytes(work.most) + ", " +
                                    o.synthetic + " takes " + format_bytes(work.total) +
                                    "; TMPDIR or --save sets another folder");
  }
  check(status, error);
}

std::string temporary_folder() {
  const char* place = std::getenv("TMPDIR");
  return std::string(place == nullptr || *place == '\0' ? "/tmp" : place) + "/";
}

// A file that is deleted with this object, or earlier.
class TemporaryFile {
 public:
  /// `folder` ends with a slash.
  explicit TemporaryFile(const std::string& folder) : folder_(folder + "moe-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) {
      throw CallError(MOE_ERR_IO,
                      folder_ + ": cannot create a temporary folder: " + std::strerror(errno));
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { remove(); }
  std::string path() const { return folder_ + "/model.moe"; }
  void remove() const {
    (void)unlink(path().c_str());
    (void)rmdir(folder_.c_str());
  }

 private:
  std::string folder_;
};

// Errors name the shape rather than a temporary file.
Model open_named(const BenchOptions& o, moe_env* env, const ModelOptions& model) {
  try {
    return open_model_to_run(model, env, o.n_sessions);
  } catch (const CallError& e) {
    const std::string text = e.what();
    if (!text.starts_with(model.path)) throw;
    throw CallError(e.code, o.synthetic + text.substr(model.path.size()));
  }
}

// Opens an outline at the path of `model` as the file would be: what cannot work is refused before
// gigabytes are written. Sets the cap that was chosen for the machine. A GPU gets its weights when
// a model is opened, of which an outline has none.
void try_outline(const BenchOptions& o, moe_env* env, ModelOptions& model) {
  if (std::string_view(env_info(env).device) != "cpu") return;
  write_file(o, model.path, Content::kOutline);
  const Model outline = open_named(o, env, model);
  ModelOptions named = model;
  named.path = o.synthetic;
  check_sessions(named, outline.get(), o.n_sessions);
  const uint64_t cap = memory_plan(model, outline.get()).cap_bytes;
  if (cap != 0) model.memory = std::to_string(cap);
}

// An open file remains readable without its name, so no signal can leave it behind.
Model open_temporary(const BenchOptions& o, moe_env* env) {
  const TemporaryFile file(temporary_folder());
  ModelOptions model = o.model;
  model.path = file.path();
  try_outline(o, env, model);
  write_file(o, file.path(), Content::kWeights);
  return open_named(o, env, model);
}

Model open_saved(const BenchOptions& o, moe_env* env) {
  ModelOptions model = o.model;
  {
    const TemporaryFile outline(folder_of(o.save));  // where --io direct means the same
    model.path = outline.path();
    try_outline(o, env, model);
  }
  model.path = o.save;
  write_file(o, o.save, Content::kWeights);
  return open_model_to_run(model, env, o.n_sessions);
}

// Empty if there is not enough memory.
Loaded make_in_memory(const BenchOptions& o, moe_env* env) {
  Loaded loaded;
  Work work;
  work.most = available_budget();
  const moe_synthetic_params p = synthetic_params(o, &work);
  moe_error error;
  void* data = nullptr;
  size_t size = 0;
  const moe_status status = moe_synthetic_create(o.synthetic.c_str(), &p, &data, &size, &error);
  if (status == MOE_ERR_CANCELLED && !work.fits()) return loaded;
  check(status, error);
  loaded.image.reset(data, moe_synthetic_free);
  moe_model* model = nullptr;
  check(moe_model_open_memory(env, data, size, nullptr, &model, &error), error);
  loaded.model.reset(model);
  return loaded;
}

}  // namespace

void add_synthetic_options(CLI::App& c, BenchOptions& o) {
  c.add_option("--synthetic", o.synthetic,
               "Random weights of a named shape: " + listed_names(moe_synthetic_shape_name))
      ->check(listed(listed_names(moe_synthetic_shape_name)))
      ->option_text("SHAPE");
  c.add_option(
       "--weights", o.weights,
       "Format of the synthetic linear weights: auto, " + listed_names(moe_weight_format_name))
      ->check(listed("auto, " + listed_names(moe_weight_format_name)))
      ->option_text("FORMAT")
      ->capture_default_str()
      ->each([&o](const std::string&) { o.weights_named = true; });
  c.add_option("--save", o.save,
               "Write the synthetic model to FILE and stop; with --memory, --io or --map, measure "
               "from FILE "
               "(without --save: from a temporary file in TMPDIR)")
      ->check(not_empty())
      ->check(no_stdout())
      ->option_text("FILE");
}

void save_synthetic(const BenchOptions& o) { write_file(o, o.save, Content::kWeights); }

Loaded load_synthetic(const BenchOptions& o, moe_env* env) {
  memory_cap(o.model);  // reports an invalid one before anything is created
  Loaded loaded;
  if (!o.save.empty()) {
    loaded.model = open_saved(o, env);
    return loaded;
  }
  if (!o.from_file()) loaded = make_in_memory(o, env);
  if (!loaded.model) loaded.model = open_temporary(o, env);
  return loaded;
}

}  // namespace moe_cli
