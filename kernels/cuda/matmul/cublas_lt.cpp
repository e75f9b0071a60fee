// SPDX-License-Identifier: MIT
// Cuts a product into panels that fit in scratch memory, keeps a plan per shape, and runs unpack,
// product and scales in turn.
#include "kernels/cuda/matmul/cublas_lt.h"

#include <algorithm>

#include "src/base/checked.h"

namespace moe::cuda {
namespace {

constexpr int32_t kPiece = 16;           // unit of weight rows and inputs
constexpr int64_t kChunkAim = 1024;      // preferred activation rows per chunk
constexpr int32_t kChunkUnit = 64;       // unit of activation rows
constexpr size_t kPartBytes = 256;       // alignment of the scratch's parts
constexpr int32_t kLeastAlignment = 16;  // of codes: read at once by int8 kernels

/// One weight scale per row or in total, one activation scale per row: sums over all inputs.
bool sums_whole_rows(const Matrix& m) {
  return m.act == ActPrecision::kA8 &&
         (m.format == FormatId::kInt8 || m.format == FormatId::kTernary2) &&
         (m.scale_kind == ScaleKind::kTensor || m.scale_kind == ScaleKind::kRow);
}

int32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  int32_t alignment = 1;
  while (alignment < 256 && address % static_cast<uintptr_t>(2 * alignment) == 0) alignment *= 2;
  return alignment;
}

// The largest part of `n`, at most `most`, when n is split into the fewest nearly equal parts in
// units of `unit`.
int32_t even_part(int32_t n, int64_t most, int32_t unit) {
  const int64_t room = most / unit * unit;
  if (room >= n) return static_cast<int32_t>(round_up(int64_t{n}, int64_t{unit}));
  const int64_t parts = (n + room - 1) / room;
  return static_cast<int32_t>(round_up((n + parts - 1) / parts, int64_t{unit}));
}

}  // namespace

/// How a product is split into panels of weight rows and chunks of activation rows.
struct CublasLt::Cut {
  int32_t n_rows = 0;     // of activations
  int32_t n_weights = 0;  // rows, a multiple of 16
  int32_t panel = 0;      // 0: it does not fit
  int32_t chunk = 0;
  lt::Shape shape;  // of a whole panel and chunk

  lt::Shape shape_at(int32_t first_weight, int32_t first_row) const {
    lt::Shape s = shape;
    s.m = std::min(panel, n_weights - first_weight);
    s.n = std::min(chunk, n_rows - first_row);
    return s;
  }
};

CublasLt::~CublasLt() {
  memory_.set_spare(nullptr);
  release();
  for (CachedPlan& p : plans_) {
    if (p.last_use != 0) library_.clear(&p.plan);
  }
}

void CublasLt::release() {
  off_ = true;
  if (in_use_) (void)cudaEventSynchronize(used_);  // of a lost GPU: nothing can be done
  in_use_ = false;
  if (used_ != nullptr) (void)cudaEventDestroy(used_);
  used_ = nullptr;
  memory_.free(scratch_, scratch_bytes_);
  scratch_ = nullptr;
}

bool CublasLt::give_back() {
  LockGuard guard(mutex_);
  if (scratch_ == nullptr) return false;
  release();
  return true;
}

uint64_t CublasLt::bytes() {
  LockGuard guard(mutex_);
  return scratch_ != nullptr ? scratch_bytes_ : 0;
}

// True if the library, its scratch and the event exist.
bool CublasLt::ready() {
  if (off_) return false;
  if (scratch_ != nullptr) return true;
  off_ = true;  // until initialisation succeeds
  if (!library_.is_open() && !library_.open(options_.names)) return false;
  const size_t bytes = round_up(options_.weight_bytes, kPartBytes) +
                       round_up(options_.sum_bytes, kPartBytes) + options_.workspace_bytes;
  void* memory = nullptr;
  if (!memory_.alloc_spare(bytes, &memory).ok()) return false;
  scratch_ = static_cast<uint8_t*>(memory);
  scratch_bytes_ = bytes;
  if (cudaEventCreateWithFlags(&used_, cudaEventDisableTiming) != cudaSuccess) {
    (void)cudaGetLastError();
    used_ = nullptr;
    release();
    return false;
  }
  off_ = false;
  return true;
}

const lt::Plan& CublasLt::find(const lt::Shape& shape) {
  CachedPlan* oldest = &plans_[0];
  for (CachedPlan& p : plans_) {
    if (p.last_use != 0 && p.plan.shape == shape) {
      p.last_use = ++clock_;
      return p.plan;
    }
    if (p.last_use < oldest->last_use) oldest = &p;
  }
  if (oldest->last_use != 0) library_.clear(&oldest->plan);
  oldest->plan = library_.plan(shape, options_.workspace_bytes);
  oldest->last_use = ++clock_;
  return oldest->plan;
}

CublasLt::Cut CublasLt::cut(int32_t n_rows, const Codes& codes, const Matrix& m) const {
  Cut c;
  const int64_t k = round_up(int64_t{m.cols}, int64_t{kPiece});
  const int64_t rows = round_up(int64_t{m.rows}, int64_t{kPiece});
  const int32_t alignment = alignment_of(codes.codes);
  if (rows > INT32_MAX || codes.ld > INT32_MAX || codes.ld < k || alignment < kLeastAlignment) {
    return c;
  }
  const auto all_sums = static_cast<int64_t>(options_.sum_bytes / sizeof(int32_t));
  const int64_t wanted = std::min(round_up(int64_t{n_rows}, int64_t{kChunkUnit}), kChunkAim);
  const int64_t most = std::min(static_cast<int64_t>(options_.weight_bytes) / k,
                                std::max(all_sums / wanted, int64_t{kPiece}));
  if (most < kPiece) return c;
  const int32_t panel = even_part(static_cast<int32_t>(rows), most, kPiece);
  const int64_t sums = all_sums / panel;
  if (sums < kChunkUnit) return c;
  c.n_rows = n_rows;
  c.n_weights = static_cast<int32_t>(rows);
  c.panel = panel;
  c.chunk = std::min(n_rows, even_part(n_rows, sums, kChunkUnit));
  c.shape.k = static_cast<int32_t>(k);
  c.shape.ld_weights = static_cast<int32_t>(k);
  c.shape.ld_codes = static_cast<int32_t>(codes.ld);
  c.shape.codes_alignment = alignment;  // of every chunk: 64 rows of at least 128 bytes apart
  return c;
}

// True if there is an algorithm for each of the up to four shapes.
bool CublasLt::plan_all(const Cut& c) {
  const int32_t last_weight = (c.n_weights - 1) / c.panel * c.panel;
  const int32_t last_row = (c.n_rows - 1) / c.chunk * c.chunk;
  for (const int32_t weight : {0, last_weight}) {
    for (const int32_t row : {0, last_row}) {
      if (!find(c.shape_at(weight, row)).usable) return false;
    }
  }
  return true;
}

// Gives the scratch to later work in the stream.
cudaError_t CublasLt::take_turn(cudaStream_t stream) {
  const bool other = in_use_ && user_ != stream;
  user_ = stream;
  return other ? cudaStreamWaitEvent(stream, used_, 0) : cudaSuccess;
}

cudaError_t CublasLt::enqueue(cudaStream_t stream, const Cut& c, const Codes& codes,
                              const MatmulOut& out, bool* done) {
  auto* weights = reinterpret_cast<int8_t*>(scratch_);
  uint8_t* after = scratch_ + round_up(options_.weight_bytes, kPartBytes);
  auto* sums = reinterpret_cast<int32_t*>(after);
  uint8_t* workspace = after + round_up(options_.sum_bytes, kPartBytes);
  FinishOp finish;
  finish.sums = sums;
  finish.act_scales = codes.scales;
  finish.out = out;
  for (int32_t weight = 0; weight < c.n_weights; weight += c.panel) {
    finish.first_row = weight;
    finish.n_rows = c.shape_at(weight, 0).m;
    cudaError_t error =
        unpack_rows(stream, out.weight.matrix, weight, finish.n_rows, weights, c.shape.ld_weights);
    if (error != cudaSuccess) return error;
    for (int32_t row = 0; row < c.n_rows; row += c.chunk) {
      const lt::Shape shape = c.shape_at(weight, row);
      const lt::Result result =
          library_.multiply(find(shape), weights, codes.codes + row * codes.ld, sums, workspace,
                            options_.workspace_bytes, stream);
      if (result != lt::kSuccess) {
        // The library failed after accepting. Own kernels can rewrite all of y, but must not
        // accumulate into a partly updated y.
        off_ = true;
        const bool anew = !out.accumulate || (weight == 0 && row == 0);
        return anew ? cudaSuccess : cudaErrorLaunchFailure;
      }
      finish.first_token = row;
      finish.tokens = shape.n;
      error = finish_sums(stream, finish);
      if (error != cudaSuccess) return error;
    }
  }
  *done = true;
  return cudaSuccess;
}

cudaError_t CublasLt::multiply(cudaStream_t stream, int32_t n_rows, const MatmulInput& in,
                               const MatmulOut& out, bool always, bool* done) {
  *done = false;
  const Matrix& m = out.weight.matrix;
  if (n_rows <= 0 || out.table != nullptr || !sums_whole_rows(m)) return cudaSuccess;
  const bool large =
      n_rows >= options_.rows && m.cols >= options_.inputs && m.rows >= options_.outputs;
  if (!large && !always) return cudaSuccess;
  LockGuard guard(mutex_);
  if (!ready()) return cudaSuccess;
  const Cut c = cut(n_rows, in.a8, m);
  if (c.panel == 0 || !plan_all(c)) return cudaSuccess;
  if (const cudaError_t error = take_turn(stream); error != cudaSuccess) return error;
  const cudaError_t error = enqueue(stream, c, in.a8, out, done);
  in_use_ = true;
  const cudaError_t recorded = cudaEventRecord(used_, stream);
  if (off_) release();
  return error != cudaSuccess ? error : recorded;
}

}  // namespace moe::cuda
