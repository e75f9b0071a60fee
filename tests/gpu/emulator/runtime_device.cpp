// Errors and properties of the emulated GPU.

#include <stdio.h>

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
cudaError_t cudaSetDevice(int device) {
  BEGIN_CALL();
  return device >= 0 && device < runtime().machine.devices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  BEGIN_CALL();
  if (device < 0 || device >= runtime().machine.devices) return cudaErrorInvalidDevice;
  *out = {};
  snprintf(out->name, sizeof out->name, "emulated");
  out->totalGlobalMem = runtime().machine.memory;
  out->major = 9;
  out->multiProcessorCount = 4;
  out->l2CacheSize = 1 << 20;
  out->sharedMemPerBlockOptin = 227 * 1024;
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
  *total = runtime().machine.memory;
  *free = *total - std::min(*total, runtime().arena.in_use());
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  BEGIN_CALL();
  return remember(drain_all());
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  BEGIN_CALL();
  return cudaSuccess;
}
