// SPDX-License-Identifier: MIT
// Version, statuses and the environment.

#include "kernels/cpu/select.h"
#include "quant/formats.h"
#include "src/base/os/memory.h"
#include "src/c_api/handles.h"

#define MOE_TEXT_OF_(x) #x
#define MOE_TEXT_OF(x) MOE_TEXT_OF_(x)

namespace moe {

Status write_text(const char* text, size_t n, char* buffer, size_t capacity, size_t* length) {
  *length = n;
  if (buffer == nullptr && capacity == 0) return {};
  if (buffer == nullptr || capacity < n + 1) {
    return Status::error(MOE_ERR_TOO_LONG, "buffer: expected room for %zu bytes, found %zu", n + 1,
                         buffer == nullptr ? size_t{0} : capacity);
  }
  if (n != 0) std::memcpy(buffer, text, n);
  buffer[n] = '\0';
  return {};
}

Status check_env(const moe_env* env) {
  if (env == nullptr) return null_argument("env");
  if (!env->forked()) return {};
  return Status::error(MOE_ERR_STATE,
                       "made by process %d before fork(); process %d can only free it",
                       env->process, process_id());
}

Status check_model(const moe_model* model) {
  return model == nullptr ? null_argument("model") : check_env(model->env.get());
}

Status check_session(const moe_session* session) {
  return session == nullptr ? null_argument("session") : check_model(session->model.get());
}

namespace {

// NULL: malloc.
Status read_allocator(const moe_allocator* given, Allocator* out) {
  *out = system_allocator();
  if (given == nullptr) return {};
  moe_allocator a{};
  MOE_TRY(read_params(given, "params.allocator", &a));
  if (a.allocate == nullptr || a.deallocate == nullptr) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "params.allocator: allocate and deallocate must both be set");
  }
  *out = {a.allocate, a.deallocate, a.user};
  return {};
}

// moe_log_fn takes an enum, the core's sink an int.
void pass_log(void* env, int level, const char* text) {
  const auto* e = static_cast<const moe_env*>(env);
  e->log(e->log_user, static_cast<moe_log_level>(level), text);
}

void destroy(moe_env* env) {
  const Allocator allocator = env->allocator;
  if (env->forked()) {
    if (env->out_of_reach()) return;
    env->pool.forget_workers();
  }
  env->~moe_env();
  deallocate(allocator, env, sizeof *env);
}

Status create_env(const moe_env_params* given, moe_env** out) {
  if (out == nullptr) return null_argument("out");
  moe_env_params p{};
  MOE_TRY(read_params(given, "params", &p));
  Allocator allocator;
  MOE_TRY(read_allocator(p.allocator, &allocator));
  if (p.allocator == nullptr && !system_has_memory()) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "params.allocator: expected one, found NULL: this build has no memory of "
                         "its own (MOE_OS=none)");
  }
  void* memory = allocate(allocator, sizeof(moe_env), 64);
  if (memory == nullptr) return out_of_memory("environment", sizeof(moe_env));
  auto* env = new (memory) moe_env(allocator);
  if (p.log != nullptr) {
    env->log = p.log;
    env->log_user = p.log_user;
    env->logger = {pass_log, env};
  }
  if (p.clock != nullptr) env->clock = {p.clock, p.clock_user};
  Status status = env->pool.start(p.threads);
  Result<const CpuKernels*> kernels = select_kernels(p.isa);
  if (status.ok()) status = kernels.status();
  if (status.ok()) {
    env->isa = kernels.value()->name;
    status = env->device.open({p.device, p.isa, p.gpu_memory_bytes}, env->pool, env->logger,
                              env->allocator);
  }
  if (!status.ok()) {
    destroy(env);
    return status;
  }
  *out = env;
  return {};
}

Status env_info(const moe_env* env, moe_env_info* out) {
  if (env == nullptr) return null_argument("env");
  MOE_TRY(check_out_struct(out, "out"));
  moe_env_info info{};
  info.threads = env->pool.n_threads();
  const Device& device = *env->device.get();
  info.device = device.uses_host_memory() ? "cpu" : device.name();
  info.isa = env->isa;
  write_struct(info, out);
  return {};
}

}  // namespace

void drop(moe_env* env) {
  if (env->references.remove()) destroy(env);
}

}  // namespace moe

moe_status moe_env_create(const moe_env_params* params, moe_env** out, moe_error* error) {
  return moe::deliver(moe::create_env(params, out), error);
}

void moe_env_free(moe_env* env) {
  if (env != nullptr) moe::drop(env);
}

moe_status moe_env_get_info(const moe_env* env, moe_env_info* out, moe_error* error) {
  return moe::deliver(moe::env_info(env, out), error);
}

const char* moe_isa_name(size_t index) { return moe::built_isa(index); }
const char* moe_weight_format_name(size_t index) { return moe::weight_format_name(index); }

uint32_t moe_version(void) {
  return MOE_VERSION_MAJOR * 1000000u + MOE_VERSION_MINOR * 1000u + MOE_VERSION_PATCH;
}

const char* moe_version_string(void) {
  return MOE_TEXT_OF(MOE_VERSION_MAJOR) "." MOE_TEXT_OF(MOE_VERSION_MINOR) "." MOE_TEXT_OF(
      MOE_VERSION_PATCH);
}

const char* moe_status_name(moe_status status) {
  switch (moe::enum_number(status)) {
    case MOE_OK:
      return "MOE_OK";
    case MOE_ERR_ARGUMENT:
      return "MOE_ERR_ARGUMENT";
    case MOE_ERR_RANGE:
      return "MOE_ERR_RANGE";
    case MOE_ERR_SHAPE:
      return "MOE_ERR_SHAPE";
    case MOE_ERR_NON_FINITE:
      return "MOE_ERR_NON_FINITE";
    case MOE_ERR_STATE:
      return "MOE_ERR_STATE";
    case MOE_ERR_TOO_LONG:
      return "MOE_ERR_TOO_LONG";
    case MOE_ERR_UNSUPPORTED:
      return "MOE_ERR_UNSUPPORTED";
    case MOE_ERR_IO:
      return "MOE_ERR_IO";
    case MOE_ERR_NOT_FOUND:
      return "MOE_ERR_NOT_FOUND";
    case MOE_ERR_FORMAT:
      return "MOE_ERR_FORMAT";
    case MOE_ERR_VERSION:
      return "MOE_ERR_VERSION";
    case MOE_ERR_CORRUPT:
      return "MOE_ERR_CORRUPT";
    case MOE_ERR_TEXT:
      return "MOE_ERR_TEXT";
    case MOE_ERR_MEMORY:
      return "MOE_ERR_MEMORY";
    case MOE_ERR_BUDGET:
      return "MOE_ERR_BUDGET";
    case MOE_ERR_DEVICE:
      return "MOE_ERR_DEVICE";
    case MOE_ERR_CANCELLED:
      return "MOE_ERR_CANCELLED";
    case MOE_ERR_INTERNAL:
      return "MOE_ERR_INTERNAL";
  }
  return "unknown status";
}
