// SPDX-License-Identifier: MIT
#pragma once
// The part of the CUDA runtime that kernels/cuda uses, on host memory. Streams are lazy: enqueued
// work runs when the host waits for it, which exposes host code that overwrites a buffer too early.
// Device memory is inaccessible outside of kernels and copies.

#include "emulator.h"

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum {
  cudaStreamNonBlocking = 1,
  cudaEventDisableTiming = 2,
  cudaHostAllocDefault = 0,
  cudaHostRegisterReadOnly = 8
};

struct cudaFuncAttributes {
  int binaryVersion;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount, l2CacheSize;
  size_t sharedMemPerBlockOptin;
};

struct EmulatedGraph;
struct EmulatedEvent;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;
using cudaEvent_t = EmulatedEvent*;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** out, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** out, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
template <class T>
cudaError_t cudaMalloc(T** out, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(out), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** out, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(out), bytes);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* to, int value, size_t bytes);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

cudaError_t cudaEventCreate(cudaEvent_t* out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
// No profiler is emulated: these only succeed.
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function);

// The driver's contexts: one per GPU, and a stack of them per thread. The top is the current one.
#define CUDART_VERSION 13000
enum CUresult : int { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_CONTEXT = 201 };
using CUdevice = int;
struct EmulatedContext {
  int device;
};
using CUcontext = EmulatedContext*;
enum { cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result = nullptr);

namespace emulator {

template <class F>
cudaError_t launch(cudaStream_t stream, dim3 blocks, dim3 threads, size_t shared_bytes, F thread) {
  return static_cast<cudaError_t>(
      launch_kernel(stream, blocks, threads, shared_bytes, std::move(thread)));
}

/// The machine that the runtime emulates.
struct Machine {
  int devices = 1;                   // 0: cudaErrorNoDevice
  cudaError_t driver = cudaSuccess;  // the result of every call, e.g. cudaErrorInsufficientDriver
  size_t memory = size_t{1} << 30;
  size_t pinned = size_t{1} << 40;  // available pinned host memory
  int major = 9;                    // compute capability
  int minor = 0;
  size_t shared = 227 * 1024;      // largest shared memory of a block
  cudaError_t code = cudaSuccess;  // the result of loading a kernel
};
/// The machine that a program starts with: MOE_EMULATED_GPU is empty, "sm_86", or "no_code" (a GPU
/// for which the module has no code).
Machine default_machine();
void set_machine(const Machine& machine);
/// The call after the next `calls` that can fail returns `error`; sticky: so do all later ones.
void fail_after(int calls, cudaError_t error, bool sticky);
/// The next call of this function returns `error`.
void fail_next(const char* function, cudaError_t error);
/// As fail_after() of the calls that are made while a stream is captured.
void fail_in_capture(int calls, cudaError_t error);
void clear_failure();
/// Whether the failure is still to come.
bool failure_ahead();
/// The number of calls that can fail, since the start.
int calls_made();
/// The contexts that exist, as bits. A call that needs one and finds none current makes that of
/// GPU 0.
uint32_t contexts();
/// The GPU of the calling thread's current context; -1: none.
int current_context();
/// Makes the context of a GPU current, as a program that uses CUDA itself does; -1: none.
void set_current_context(int device);
/// Bytes of device memory in use.
size_t bytes_in_use();
size_t pinned_bytes();
int64_t launches();
/// Bytes copied to the device, since the start.
size_t bytes_sent();

}  // namespace emulator
