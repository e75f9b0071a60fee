// SPDX-License-Identifier: MIT
#pragma once
// A device that calls a hook before each operation of another device: to cancel, fail, count, or
// inspect a layer's inputs.

#include <atomic>
#include <functional>

#include "kernels/device.h"
#include "src/base/os/clock.h"

namespace moe {

class HookDevice final : public Device {
 public:
  explicit HookDevice(Device& inner) : inner_(inner) {}

  /// The hook is called before each operation with its number, counted from 0 since the last arm().
  void arm(std::function<void(int op, Stream&)> hook) {
    n_ops_ = 0;
    hook_ = std::move(hook);
  }
  void disarm() { hook_ = nullptr; }
  /// The watcher is called before each operation of a layer's FFN or experts.
  void watch_ffn(std::function<void(const FfnOp&)> watcher) { ffn_watcher_ = std::move(watcher); }
  int n_ops() const { return n_ops_; }
  /// Says that each operation takes a microsecond: what depends on measured times, as the length of
  /// drafts does, is then the same in each run and on each machine, with one session at a time.
  Clock clock() {
    return {[](void* user) { return 1000 * static_cast<HookDevice*>(user)->n_ever_.load(); }, this};
  }

  const char* name() const override { return inner_.name(); }
  Status alloc(size_t bytes, void** out) override { return inner_.alloc(bytes, out); }
  void free(void* memory, size_t bytes) override { inner_.free(memory, bytes); }
  Status upload(void* device, const void* host, size_t bytes) override {
    return inner_.upload(device, host, bytes);
  }
  Status download(void* host, const void* device, size_t bytes) override {
    return inner_.download(host, device, bytes);
  }
  size_t stream_bytes(const StreamShape& shape) const override {
    return inner_.stream_bytes(shape);
  }
  Result<Stream*> open_stream(const StreamShape& shape) override {
    return inner_.open_stream(shape);
  }
  void close_stream(Stream* stream) override { inner_.close_stream(stream); }
  Status sync(Stream& stream) override { return inner_.sync(stream); }
  void share(int64_t n, int64_t work, void (*part)(void*, int64_t, int64_t), void* user) override {
    inner_.share(n, work, part, user);
  }
  int64_t key_place(KvType type, int32_t head_dim, int32_t position, int32_t dim) const override {
    return inner_.key_place(type, head_dim, position, dim);
  }

  void embed(Stream& s, const Matrix& table, const Matrix& positions, const BatchRow* rows,
             int32_t n_rows, float multiplier, float* x) override {
    before(s);
    inner_.embed(s, table, positions, rows, n_rows, multiplier, x);
  }
  void embed_from(Stream& s, RowSource& table, int32_t d, const BatchRow* rows, int32_t n_rows,
                  float multiplier, float* x) override {
    before(s);
    inner_.embed_from(s, table, d, rows, n_rows, multiplier, x);
  }
  void norm(Stream& s, const NormOp& op) override {
    before(s);
    inner_.norm(s, op);
  }
  void cap(Stream& s, const CapOp& op) override {
    before(s);
    inner_.cap(s, op);
  }
  void gate(Stream& s, const GateOp& op) override {
    before(s);
    inner_.gate(s, op);
  }
  bool has_layer_extras() const override { return inner_.has_layer_extras(); }
  void scale(Stream& s, const ScaleOp& op) override {
    before(s);
    inner_.scale(s, op);
  }
  void activate(Stream& s, const ActivateOp& op) override {
    before(s);
    inner_.activate(s, op);
  }
  void linear(Stream& s, const LinearOp& op) override {
    before(s);
    inner_.linear(s, op);
  }
  void attention(Stream& s, const AttentionOp& op) override {
    before(s);
    inner_.attention(s, op);
  }
  void ffn(Stream& s, const FfnOp& op) override {
    before(s);
    if (ffn_watcher_) ffn_watcher_(op);
    inner_.ffn(s, op);
  }

  bool can_mix(MixerKind kind) const override { return inner_.can_mix(kind); }
  void mix(Stream& s, const MixerOp& op) override {
    before(s);
    inner_.mix(s, op);
  }

 private:
  void before(Stream& s) {
    ++n_ever_;
    const int op = n_ops_++;
    if (hook_) hook_(op, s);
  }

  Device& inner_;
  std::function<void(int, Stream&)> hook_;
  std::function<void(const FfnOp&)> ffn_watcher_;
  std::atomic<uint64_t> n_ever_{0};  // operations, whatever was armed
  std::atomic<int> n_ops_{0};        // sessions of several threads may share the device
};

}  // namespace moe
