// SPDX-License-Identifier: MIT
// Errors, properties and contexts of the emulated GPUs.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "runtime.h"

using namespace emulator;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorInvalidValue";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() {
  const cudaError_t error = runtime().last;
  runtime().last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return runtime().last; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = runtime().machine.driver == cudaErrorInsufficientDriver ? 11040 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  BEGIN_CALL();
  *n = runtime().machine.devices;
  return cudaSuccess;
}

namespace {

constexpr int kMostDevices = 4;
EmulatedContext g_contexts[kMostDevices] = {{0}, {1}, {2}, {3}};
// Null is an entry too: no context is current.
thread_local std::vector<CUcontext> t_current;

CUcontext context_of(int device) {
  runtime().contexts |= 1u << device;
  return &g_contexts[device];
}

void make_current(CUcontext context) {
  if (t_current.empty()) t_current.push_back(nullptr);
  t_current.back() = context;
}

bool is_device(int device) {
  return device >= 0 && device < std::min(runtime().machine.devices, kMostDevices);
}

CUresult get(CUdevice* out, int index) {
  const Lock lock(runtime().mutex);
  *out = index;
  return is_device(index) ? CUDA_SUCCESS : static_cast<CUresult>(cudaErrorInvalidDevice);
}
CUresult retain(CUcontext* out, CUdevice device) {
  const Lock lock(runtime().mutex);
  if (!is_device(device)) return static_cast<CUresult>(cudaErrorInvalidDevice);
  *out = context_of(device);
  return CUDA_SUCCESS;
}
CUresult push(CUcontext context) {
  const Lock lock(runtime().mutex);
  const cudaError_t error = remember(begin_call(__func__));
  if (error == cudaSuccess) t_current.push_back(context);
  return static_cast<CUresult>(error);
}
CUresult pop(CUcontext* out) {
  if (t_current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *out = t_current.back();
  t_current.pop_back();
  return CUDA_SUCCESS;
}

}  // namespace

namespace emulator {

Machine default_machine() {
  Machine machine;
  const char* name = getenv("MOE_EMULATED_GPU");
  if (name == nullptr) return machine;
  if (strcmp(name, "no_code") == 0) machine.code = cudaErrorNoKernelImageForDevice;
  if (strcmp(name, "sm_86") == 0) {
    machine.major = 8;
    machine.minor = 6;
    machine.shared = 99 * 1024;
  }
  return machine;
}
int use_context() {
  if (current_context() < 0) make_current(context_of(0));
  return current_context();
}
uint32_t contexts() {
  const Lock lock(runtime().mutex);
  return runtime().contexts;
}
int current_context() {
  return t_current.empty() || t_current.back() == nullptr ? -1 : t_current.back()->device;
}
void set_current_context(int device) {
  const Lock lock(runtime().mutex);
  make_current(device < 0 ? nullptr : context_of(device));
}

}  // namespace emulator

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult*) {
  BEGIN_CALL();
  *out = nullptr;
  if (strcmp(name, "cuDeviceGet") == 0) *out = reinterpret_cast<void*>(get);
  if (strcmp(name, "cuDevicePrimaryCtxRetain") == 0) *out = reinterpret_cast<void*>(retain);
  if (strcmp(name, "cuCtxPushCurrent") == 0) *out = reinterpret_cast<void*>(push);
  if (strcmp(name, "cuCtxPopCurrent") == 0) *out = reinterpret_cast<void*>(pop);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  BEGIN_CALL();
  if (!is_device(device)) return cudaErrorInvalidDevice;
  make_current(context_of(device));
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = std::max(0, current_context());
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  BEGIN_CALL();
  if (device < 0 || device >= runtime().machine.devices) return cudaErrorInvalidDevice;
  *out = {};
  snprintf(out->name, sizeof out->name, "emulated");
  out->totalGlobalMem = runtime().machine.memory;
  out->major = runtime().machine.major;
  out->minor = runtime().machine.minor;
  out->multiProcessorCount = 4;
  out->l2CacheSize = 1 << 20;
  out->sharedMemPerBlockOptin = runtime().machine.shared;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess) return e;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  BEGIN_CALL();
  use_context();
  *total = runtime().machine.memory;
  *free = *total - std::min(*total, runtime().arena.in_use());
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  BEGIN_CALL();
  use_context();
  return remember(drain_all());
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  BEGIN_CALL();
  use_context();
  *out = {};
  out->binaryVersion = 10 * runtime().machine.major + runtime().machine.minor;
  return remember(runtime().machine.code);
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  BEGIN_CALL();
  return cudaSuccess;
}
