// SPDX-License-Identifier: MIT
// The converter and synthetic models. Part of libmoe_convert: catches all exceptions.

#include "src/convert/convert.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "include/moe_c.h"
#include "src/c_api/params.h"
#include "src/convert/shapes.h"
#include "src/convert/synthetic.h"

namespace moe {
namespace {

// Converts the standard library's exceptions in `f` to a status.
template <class F>
moe_status delivered(moe_error* error, F&& f) {
  try {
    return deliver(f(), error);
  } catch (const std::bad_alloc&) {
    return deliver(Status::error(MOE_ERR_MEMORY, "out of memory"), error);
  } catch (const std::exception& e) {
    return deliver(Status::error(MOE_ERR_INTERNAL, "%s", e.what()), error);
  }
}

Status read_texts(const char* name, const char* const* texts, int32_t n,
                  std::vector<std::string>* out) {
  if (n < 0 || (n > 0 && texts == nullptr)) {
    return Status::error(MOE_ERR_ARGUMENT, "params.%s: %d entries at a NULL or negative count",
                         name, n);
  }
  for (int32_t i = 0; i < n; ++i) {
    if (texts[i] == nullptr) {
      return Status::error(MOE_ERR_ARGUMENT, "params.%s[%d] is NULL", name, i);
    }
    out->emplace_back(texts[i]);
  }
  return {};
}

Status convert_options(const moe_convert_params* given, ConvertOptions* out) {
  moe_convert_params p{};
  MOE_TRY(read_params(given, "params", &p));
  ConvertOptions options;
  if (p.weights != nullptr) options.weights = p.weights;
  MOE_TRY(read_texts("overrides", p.overrides, p.n_overrides, &options.overrides));
  MOE_TRY(read_texts("ignored_keys", p.ignored_keys, p.n_ignored_keys, &options.ignored_keys));
  options.n_threads = p.n_threads;
  if (p.calibration != nullptr) {
    options.calibration = std::string_view(p.calibration, p.n_calibration);
  } else if (p.n_calibration != 0) {
    return Status::error(MOE_ERR_ARGUMENT, "params.calibration: %zu bytes at NULL",
                         p.n_calibration);
  }
  if (p.split_ffn < 0) {
    return Status::error(MOE_ERR_ARGUMENT, "params.split_ffn: expected experts or 0, found %d",
                         p.split_ffn);
  }
  options.goal = {p.most_bytes, p.most_bits};
  if (p.statistics != nullptr) options.statistics = p.statistics;
  if (p.save_statistics != nullptr) options.save_statistics = p.save_statistics;
  options.split = {p.split_ffn, p.split_by_clusters != 0};
  options.compress = p.compress != 0;
  options.verify = p.verify != 0;
  options.allow_zeros = p.allow_zeros != 0;
  options.i2_s_arm = p.i2_s_arm != 0;
  options.no_predictions = p.no_predictions != 0;
  MOE_TRY(check_reserved(p.reserved));
  if (p.progress != nullptr) {
    options.progress = [p](uint64_t done, uint64_t total, const char* what) {
      return p.progress(p.progress_user, done, total, what);
    };
  }
  if (p.report != nullptr) {
    options.on_matrix = [p](const MatrixReport& m) { p.report(p.report_user, to_json(m).c_str()); };
    options.on_end = [p](const ConvertReport& r) { p.report(p.report_user, to_json(r).c_str()); };
  }
  *out = std::move(options);
  return {};
}

Status run_convert(const char* source, const char* destination, const moe_convert_params* params) {
  if (source == nullptr) return null_argument("source");
  if (destination == nullptr) return null_argument("destination");
  ConvertOptions options;
  MOE_TRY(convert_options(params, &options));
  ConvertReport report;
  return convert(source, destination, options, &report);
}

Status synthetic_options(const char* shape, const moe_synthetic_params* given,
                         SyntheticOptions* out) {
  if (shape == nullptr) return null_argument("shape");
  moe_synthetic_params p{};
  MOE_TRY(read_params(given, "params", &p));
  if (p.weights != nullptr) out->weights = p.weights;
  out->context = p.context;
  out->seed = p.seed;
  MOE_TRY(check_reserved(p.reserved));
  out->outline = p.outline != 0;
  if (p.progress != nullptr) {
    out->progress = [p](uint64_t done, uint64_t total) {
      return p.progress(p.progress_user, done, total, "weights");
    };
  }
  return {};
}

Status write_shape(const char* shape, const moe_synthetic_params* params, const char* path) {
  SyntheticOptions options;
  MOE_TRY(synthetic_options(shape, params, &options));
  if (path == nullptr) return null_argument("path");
  return save_synthetic(shape, options, path);
}

Status create_synthetic(const char* shape, const moe_synthetic_params* params, void** data,
                        size_t* size) {
  SyntheticOptions options;
  MOE_TRY(synthetic_options(shape, params, &options));
  if (data == nullptr) return null_argument("data");
  if (size == nullptr) return null_argument("size");
  if (options.outline) {
    return Status::error(MOE_ERR_ARGUMENT, "outline: expected 0 for a model in memory, found 1");
  }
  MemorySink sink(synthetic_bytes(shape, options));
  MOE_TRY(write_synthetic(shape, options, sink));
  *size = sink.size();
  *data = sink.release();
  return {};
}

}  // namespace
}  // namespace moe

moe_status moe_convert(const char* source, const char* destination,
                       const moe_convert_params* params, moe_error* error) {
  return moe::delivered(error, [&] { return moe::run_convert(source, destination, params); });
}

const char* moe_synthetic_shape_name(size_t index) { return moe::shape_name(index); }

moe_status moe_synthetic_save(const char* shape, const moe_synthetic_params* params,
                              const char* path, moe_error* error) {
  return moe::delivered(error, [&] { return moe::write_shape(shape, params, path); });
}

moe_status moe_synthetic_create(const char* shape, const moe_synthetic_params* params, void** data,
                                size_t* size, moe_error* error) {
  return moe::delivered(error, [&] { return moe::create_synthetic(shape, params, data, size); });
}

void moe_synthetic_free(void* data) { std::free(data); }
