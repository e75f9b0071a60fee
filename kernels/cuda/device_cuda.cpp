// SPDX-License-Identifier: MIT
// The class CudaDevice: opening a GPU, memory, streams, steps with their graphs, and the latched
// error; the operations are in device_cuda_*.cpp.
#include "kernels/cuda/device_cuda.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/device_cuda_impl.h"
#include "kernels/mixers/table.h"
#include "src/base/format.h"

namespace moe::cuda {
namespace {

CudaStream& own(Stream& s) { return static_cast<CudaStream&>(s); }

// An error if the module has no code for the GPU.
Status check_code(int32_t index, const cudaDeviceProp& gpu) {
  const cudaError_t error = load_code();
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      break;
    default:
      return cuda_status(error, "loading a kernel");
  }
  (void)cudaGetLastError();
  char list[128] = "";
  int used = 0;
  for (const int capability : built_for()) {
    used += format(list + used, sizeof list - static_cast<size_t>(used), "%s%d.%d",
                   used == 0 ? "" : ", ", capability / 100, capability / 10 % 10);
    used = std::clamp(used, 0, static_cast<int>(sizeof list) - 1);
  }
  return Status::error(MOE_ERR_DEVICE,
                       "GPU %d (%s): libmoe_cuda has no code for compute capability %d.%d, it is "
                       "built for %s: %s",
                       index, gpu.name, gpu.major, gpu.minor, list, cudaGetErrorName(error));
}

}  // namespace

Status CudaDevice::open(uint64_t memory_limit) {
  int32_t n = 0;
  MOE_TRY(cuda_status(cudaGetDeviceCount(&n), "looking for GPUs"));
  if (index_ < 0 || index_ >= n) {
    return Status::error(MOE_ERR_DEVICE, "no GPU %d: expected 0..%d", index_, n - 1);
  }
  MOE_TRY(context_.open(index_));
  const InContext here(context_);
  MOE_TRY(here.status());
  return open_here(memory_limit);
}

Status CudaDevice::open_here(uint64_t memory_limit) {
  cudaDeviceProp properties;
  MOE_TRY(cuda_status(cudaGetDeviceProperties(&properties, index_), "asking what the GPU is"));
  if (properties.major < 8) {
    return Status::error(MOE_ERR_DEVICE,
                         "GPU %d (%s): expected compute capability 8.0 or newer, found %d.%d",
                         index_, properties.name, properties.major, properties.minor);
  }
  MOE_TRY(check_code(index_, properties));
  size_t free = 0;
  size_t total = 0;
  MOE_TRY(cuda_status(cudaMemGetInfo(&free, &total), "asking for the GPU's free memory"));
  shared_ = properties.sharedMemPerBlockOptin;
  MOE_TRY(copies_.open());
  std::snprintf(name_, sizeof name_, "cuda:%d (%.60s)", index_, properties.name);
  // Code, graphs and block rounding take memory too.
  const uint64_t most = free - free / 16;
  if (memory_limit > most) {
    logger_.log(LogLevel::kWarning,
                "%s: the limit of %.3f MB is lowered to %.3f MB, 15/16 of the free memory", name_,
                static_cast<double>(memory_limit) * 1e-6, static_cast<double>(most) * 1e-6);
  }
  memory_.set_limit(memory_limit == 0 ? most : std::min<uint64_t>(memory_limit, most));
  return {};
}

Status CudaDevice::alloc(size_t bytes, void** out) {
  const InContext here(context_);
  MOE_TRY(here.status());
  return memory_.alloc(bytes, out);
}

void CudaDevice::free(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  const InContext here(context_);
  memory_.free(memory, bytes);
}

int64_t CudaDevice::key_place(KvType type, int32_t head_dim, int32_t position, int32_t dim) const {
  return cuda::key_place(type, head_dim, position, dim);
}

Status CudaDevice::upload(void* device, const void* host, size_t bytes) {
  if (bytes == 0) return {};
  const InContext here(context_);
  MOE_TRY(here.status());
  // From pageable memory cudaMemcpy may return before the last bytes have arrived, and non-blocking
  // streams (all of ours) do not wait for them.
  MOE_TRY(
      cuda_status(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copying to the GPU"));
  return cuda_status(cudaStreamSynchronize(nullptr), "copying to the GPU");
}

Status CudaDevice::download(void* host, const void* device, size_t bytes) {
  if (bytes == 0) return {};
  const InContext here(context_);
  MOE_TRY(here.status());
  return cuda_status(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
                     "copying from the GPU");
}

Status CudaDevice::load(void* device, const HostFill& fill, Arrival* arrival) {
  const InContext here(context_);
  MOE_TRY(here.status());
  bool done = false;
  MOE_TRY(copies_.load(device, fill, arrival, &done));
  if (done) return {};
  *arrival = 0;
  void* host = allocate(allocator_, fill.bytes, kHostAlign);
  if (host == nullptr) return out_of_memory("weights", fill.bytes);
  const double begin = clock_seconds();
  Status status = fill.write(fill.user, host);
  if (status.ok()) status = upload(device, host, fill.bytes);
  if (status.ok() && fill.known) rates_.add_upload(fill.bytes, clock_seconds() - begin);
  deallocate(allocator_, host, fill.bytes);
  return status;
}

void CudaDevice::wait_for(Arrival arrival) {
  const InContext here(context_);
  (void)copies_.wait_for(arrival);
}

void CudaDevice::forget(const ExpertSource& source) { tables_.forget(source); }

size_t CudaDevice::stream_bytes(const StreamShape& shape) const {
  const size_t scratch = scratch_bytes(shape);
  return scratch == 0 ? 0 : GpuMemory::taken_by(scratch) + GpuMemory::taken_by(arena_bytes(shape));
}

size_t CudaDevice::host_stream_bytes(const StreamShape& shape) const {
  const bool computes = cpu_ != nullptr && shape.max_experts > 0;
  return arena_bytes(shape) + host_bytes(shape) + report_bytes(shape) +
         (computes ? CpuExperts::bytes(*cpu_, shape) : 0);
}

Status CudaDevice::check_routed(int32_t max_k) const {
  const int32_t most = most_combined(shared_);
  if (max_k <= most) return {};
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "%s: experts per token: at most %d in %zu bytes of shared memory, found %d",
                       name_, most, shared_, max_k);
}

Status CudaDevice::check_shape(const StreamShape& shape) const {
  const int32_t most = most_cosine_inputs(shared_);
  if (shape.max_d_e > most) {
    return Status::error(
        MOE_ERR_UNSUPPORTED,
        "%s: cosine router: d_e: at most %d in %zu bytes of shared memory, found %d", name_, most,
        shared_, shape.max_d_e);
  }
  return check_routed(shape.max_own_routed);  // overrides are checked when they are used
}

Status CudaDevice::open_parts(CudaStream& s) {
  const InContext here(context_);
  MOE_TRY(here.status());
  MOE_TRY(cuda_status(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking),
                      "making a CUDA stream"));
  s.bytes = scratch_bytes(s.shape);
  if (s.bytes == 0) return Status::error(MOE_ERR_RANGE, "stream: sizes are negative or overflow");
  MOE_TRY(alloc(s.bytes, &s.memory));
  lay_out_scratch(s);
  const auto arrived =
      static_cast<size_t>(attention_arrived_ints(s.shape.max_rows, s.shape.max_heads));
  MOE_TRY(cuda_status(cudaMemsetAsync(s.scratch.arrived, 0, arrived * sizeof(int32_t), s.stream),
                      "clearing counters"));
  MOE_TRY(cuda_status(cudaMemsetAsync(s.scratch.mixer_bad, 0, sizeof(int32_t), s.stream),
                      "clearing counters"));
  MOE_TRY(open_arena(memory_, arena_bytes(s.shape), &s.arena));
  MOE_TRY(cuda_status(cudaMallocHost(&s.host, host_bytes(s.shape)), "pinned host memory"));
  lay_out_host(s);
  *s.words = {};
  MOE_TRY(s.held.open());
  const size_t reports = report_bytes(s.shape);
  if (reports == 0) return {};
  MOE_TRY(cuda_status(cudaMallocHost(&s.reports, reports), "pinned host memory"));
  lay_out_reports(s);
  return {};
}

Result<Stream*> CudaDevice::open_stream(const StreamShape& shape) {
  MOE_ASSIGN(Box<CudaStream> s, make_box<CudaStream>(allocator_, allocator_));
  MOE_TRY(check_shape(shape));
  s->shape = shape;
  s->library = &library_;
  s->context = &context_;
  const Status status = open_parts(*s);
  Stream* opened = s.release();
  if (status.ok()) return opened;
  close_stream(opened);
  return status;
}

void CudaDevice::close_stream(Stream* stream) {
  if (stream == nullptr) return;
  const InContext here(context_);
  Box<CudaStream> s(static_cast<CudaStream*>(stream), allocator_);
  if (s->stream != nullptr) {
    (void)cudaStreamSynchronize(s->stream);  // its memory may be in use
    (void)cudaStreamDestroy(s->stream);
  }
  s->held.release_all();
  free(s->memory, s->bytes);
  close_arena(&s->arena);
  if (s->host != nullptr) cudaFreeHost(s->host);
  if (s->reports != nullptr) cudaFreeHost(s->reports);
}

Status CudaDevice::sync(Stream& stream) {
  CudaStream& s = own(stream);
  s.enter();
  wait(s);
  if (MixerFault& bad = s.words->mixer; bad.found != 0) {  // before a router's fault, if both are
    s.latch(mixer_not_finite(static_cast<MixerKind>(bad.kind), bad.layer, bad.position));
    bad = {};
  }
  if (s.words->fault != 0) {
    s.latch(Status::error(MOE_ERR_NON_FINITE, "router: a score of token %d is NaN or infinite",
                          s.words->fault - 1));
    s.words->fault = 0;
  }
  Status status = s.latched;
  s.latched = {};
  s.leave();
  if (status.ok() && s.cancelled.load()) status = Status::error(MOE_ERR_CANCELLED, "cancelled");
  return status;
}

bool CudaDevice::begin_step(Stream& stream, const BatchRow* rows, int32_t n_rows,
                            const StepKey& key) {
  CudaStream& s = own(stream);
  if (!begin_op(s)) return true;
  const auto n = static_cast<size_t>(n_rows);
  const void* staged = place(s, rows, n * sizeof(BatchRow));
  if (staged == nullptr) return true;  // also if cancelled meanwhile, which is not a fault
  s.check(cudaMemcpyAsync(s.scratch.rows, staged, n * sizeof(BatchRow), cudaMemcpyDeviceToDevice,
                          s.stream),
          "copying a step's rows");
  s.step_rows = rows;
  s.n_step_rows = n_rows;
  if (key.n == 0 || s.graphs_off || !s.live()) return true;
  StepGraph& graph = s.graphs.find(key);
  if (graph.exec != nullptr) {
    const cudaError_t error = cudaGraphLaunch(graph.exec, s.stream);
    s.step_rows = error == cudaSuccess ? nullptr : rows;
    if (error == cudaSuccess) return false;
    give_up_graphs(s, cuda_status(error, "starting a step"));
    return true;
  }
  // A step refused because experts were offloaded may be possible now.
  const uint64_t n_ready = tables_.n_ready();
  const bool ready = graph.ran_once && (!graph.refused || graph.n_ready != n_ready);
  graph.ran_once = true;
  graph.n_ready = n_ready;
  if (ready && begin_capture(s, graph)) s.capturing = &graph;
  return true;
}

bool CudaDevice::begin_capture(CudaStream& s, StepGraph& graph) {
  graph.refused = true;
  if (!open_arena(memory_, kGraphArenaBytes, &graph.arena).ok()) return false;
  const cudaError_t error = cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeRelaxed);
  graph.refused = error != cudaSuccess;
  if (!graph.refused) return true;
  close_arena(&graph.arena);
  give_up_graphs(s, cuda_status(error, "beginning a capture"));
  return false;
}

void CudaDevice::give_up_graphs(CudaStream& s, const Status& why) {
  s.graphs_off = true;
  (void)cudaGetLastError();
  logger_.log(LogLevel::kWarning, "%s: steps run without CUDA graphs: %s", name_, why.text());
}

bool CudaDevice::end_step(Stream& stream) {
  CudaStream& s = own(stream);
  s.step_rows = nullptr;
  StepGraph* graph = s.capturing;
  if (graph == nullptr) return true;
  cudaGraph_t captured = nullptr;
  (void)s.check(cudaStreamEndCapture(s.stream, &captured), "ending a capture");
  const bool ran = s.live() &&
                   s.check(cudaGraphInstantiate(&graph->exec, captured, 0), "preparing a step") &&
                   s.check(cudaMemcpyAsync(graph->arena.device, graph->arena.host,
                                           graph->arena.used, cudaMemcpyHostToDevice, s.stream),
                           "copying a step's data") &&
                   s.check(cudaGraphLaunch(graph->exec, s.stream), "starting a step");
  s.capturing = nullptr;
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (ran) return true;
  if (graph->exec != nullptr) cudaGraphExecDestroy(graph->exec);
  graph->exec = nullptr;
  close_arena(&graph->arena);
  if (!s.capture_error.ok()) give_up_graphs(s, std::exchange(s.capture_error, Status()));
  return !graph->refused || !s.live();  // what is latched is final; else the step is repeated
}

Result<Device*> open_cuda_device(const CudaOptions& options, const Allocator& allocator) {
  MOE_ASSIGN(Box<CudaDevice> device, make_box<CudaDevice>(allocator, allocator, options));
  const Status status = device->open(options.memory_limit);
  Device* opened = device.release();
  if (status.ok()) return opened;
  close_cuda_device(opened);
  return status;
}

void close_cuda_device(Device* device) {
  if (device == nullptr) return;
  auto* own_device = static_cast<CudaDevice*>(device);
  const GpuContext context = own_device->context();
  const InContext here(context);  // for its parts, which free what they have
  const Box<CudaDevice> owner(own_device, own_device->allocator());
}

}  // namespace moe::cuda
