// SPDX-License-Identifier: MIT
// Quantisers, and the two quantised linear layers, computed by Device::linear.

#include <cmath>
#include <cstring>

#include "tests/golden/golden.h"
#include "tests/support/check_shapes.h"
#include "tests/support/packed_matrix.h"
#include "tests/support/quantise_whole.h"

namespace moe::golden {
namespace {

// The library's lower bound of absmean and absmax is BitNet's, 1e-5.
void only_default_eps(const Case& c, const char* name, Outcome& outcome) {
  if (c.real(name, 1e-5) != 1e-5) outcome.problem = std::string(name) + " is not 1e-5";
}

void run_absmean(const Case& c, Devices&, Outcome& outcome) {
  only_default_eps(c, "eps", outcome);
  const Tensor w = c.in_tensor("w");
  std::vector<int8_t> codes(w.data.size());
  float scale = 0;
  outcome.status = absmean_ternary(w.floats().data(), w.rows(), w.cols(), codes.data(), &scale);
  outcome.out["codes"] = to_json(codes, w.shape);
  outcome.out["scale"] = scale;
}

// Ternary weights in Hugging Face checkpoints (BitNet b1.58 2B4T, Falcon3), four output rows per
// byte. With R = rows / 4, byte (r, c) holds, lowest bits first, the codes + 1 of rows r, r + R,
// r + 2R and r + 3R of column c. The converter reads this layout by rows (Unpacker).
Status pack_ternary_hf(const int8_t* codes, int64_t rows, int64_t cols, uint8_t* packed) {
  if (rows % 4 != 0) return Status::error(MOE_ERR_SHAPE, "rows are not in fours");
  const int64_t n = rows / 4 * cols;  // distance between the four codes of a byte
  for (int64_t i = 0; i < 4 * n; ++i) {
    if (codes[i] < -1 || codes[i] > 1) return Status::error(MOE_ERR_RANGE, "code %d", codes[i]);
  }
  for (int64_t i = 0; i < n; ++i) {
    int byte = 0;
    for (int64_t f = 0; f < 4; ++f) byte |= (codes[i + f * n] + 1) << (2 * f);
    packed[i] = static_cast<uint8_t>(byte);
  }
  return {};
}

Status unpack_ternary_hf(const uint8_t* packed, int64_t packed_rows, int64_t cols, int8_t* codes) {
  const int64_t n = packed_rows * cols;
  for (int64_t i = 0; i < 4 * n; ++i) {
    const int field = packed[i % n] >> (2 * (i / n)) & 3;
    if (field == 3) return Status::error(MOE_ERR_RANGE, "a code of 3");
    codes[i] = static_cast<int8_t>(field - 1);
  }
  return {};
}

void run_pack(const Case& c, Devices&, Outcome& outcome) {
  const Tensor codes = c.in_tensor("codes");
  std::vector<uint8_t> packed(codes.data.size() / 4 + 1);
  outcome.status = pack_ternary_hf(codes.codes().data(), codes.rows(), codes.cols(), packed.data());
  packed.resize(codes.data.size() / 4);
  outcome.out["packed"] = to_json(packed, {codes.rows() / 4, codes.cols()});
}

void run_unpack(const Case& c, Devices&, Outcome& outcome) {
  const Tensor t = c.in_tensor("packed");
  std::vector<uint8_t> packed(t.data.size());
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<uint8_t>(t.data[i]);
  std::vector<int8_t> codes(packed.size() * 4);
  outcome.status = unpack_ternary_hf(packed.data(), t.rows(), t.cols(), codes.data());
  outcome.out["codes"] = to_json(codes, {4 * t.rows(), t.cols()});
}

void run_absmax(const Case& c, Devices&, Outcome& outcome) {
  only_default_eps(c, "eps", outcome);
  const Tensor x = c.in_tensor("x");
  std::vector<int8_t> codes(x.data.size());
  std::vector<float> scales(static_cast<size_t>(x.height()));
  outcome.status =
      absmax_int8(x.floats().data(), x.height(), x.width(), codes.data(), scales.data());
  outcome.out["codes"] = to_json(codes, x.shape);
  outcome.out["scale"] = to_json(scales, {x.height(), 1});
}

void run_int8_rows(const Case& c, Devices&, Outcome& outcome) {
  const Tensor w = c.in_tensor("w");
  std::vector<int8_t> codes(w.data.size());
  std::vector<float> scales(static_cast<size_t>(w.rows()));
  outcome.status = int8_rows(w.floats().data(), w.rows(), w.cols(), codes.data(), scales.data());
  outcome.out["codes"] = to_json(codes, w.shape);
  outcome.out["scale"] = to_json(scales, {w.rows()});
}

// y = norm(x) W^T + bias on every device.
std::vector<float> linear_on_all(const Tensor& x, const Matrix& w, const std::vector<float>& bias,
                                 const Norm& norm, Devices& devices, Outcome& outcome) {
  const std::vector<float> in = x.floats();
  LinearOut out;
  out.weight = &w;
  out.bias = bias.empty() ? nullptr : bias.data();
  out.ld_y = w.rows;
  LinearOp op;
  op.x = in.data();
  op.ld_x = op.d_in = x.cols();
  op.n_rows = x.rows();
  op.norm = norm;
  op.outs = &out;
  op.n_outs = 1;
  outcome.status = check_linear(op);
  if (!outcome.status.ok()) return {};
  StreamShape shape;
  shape.max_rows = x.rows();
  shape.d_model = shape.max_d_in = x.cols();
  return same_on_all(devices.all(), outcome, [&](Device& device) {
    std::vector<float> y(static_cast<size_t>(x.rows()) * static_cast<size_t>(w.rows));
    out.y = y.data();
    Stream* stream = device.open_stream(shape).value();
    device.linear(*stream, op);
    const Status status = device.sync(*stream);
    if (!status.ok()) outcome.status = status;
    device.close_stream(stream);
    return y;
  });
}

std::vector<float> bias_of(const Case& c) {
  return c.has("bias") ? c.in_floats("bias") : std::vector<float>();
}

// The integer sums, computed with the codes as float inputs and scales of 1.
Json exact_sums(const Tensor& act_codes, PackedMatrix w, Devices& devices, Outcome& outcome) {
  Matrix m = w.get();
  const std::vector<float> one(1, 1.0f);
  m.act = ActPrecision::kF32;
  m.scales = one.data();
  const auto acc = linear_on_all(act_codes, m, {}, Norm(), devices, outcome);
  return to_json(acc, {act_codes.rows(), m.rows});
}

void run_bitlinear(const Case& c, Devices& devices, Outcome& outcome) {
  only_default_eps(c, "act_eps", outcome);
  const Tensor x = c.in_tensor("x");
  const Tensor codes = c.in_tensor("codes");
  const std::string mode = c.text("scale_mode", "multiply");
  auto scale = static_cast<float>(c.real("weight_scale", 0));
  outcome.status = validate_scales(&scale, 1);
  if (!outcome.status.ok()) return;
  if (mode == "divide") scale = 1 / scale;
  Norm norm;
  std::vector<float> norm_weight;
  Tensor normed = x;
  if (c.has("norm_weight")) {
    norm_weight = c.in_floats("norm_weight");
    norm = {NormKind::kRms, static_cast<float>(c.real("norm_eps", 1e-5)), norm_weight.data(),
            nullptr};
    std::vector<float> rows = x.floats();
    for (int32_t r = 0; r < x.rows(); ++r) {
      float* row = &rows[static_cast<size_t>(r * x.cols())];
      devices.kernels()[0]->norm_row(norm, row, x.cols(), row);
    }
    normed.data.assign(rows.begin(), rows.end());
  }
  for (FormatId format : {FormatId::kTernary2, FormatId::kTernary3}) {
    const PackedMatrix w(format, codes.codes(), codes.rows(), codes.cols(), ActPrecision::kA8,
                         ScaleKind::kTensor, {scale});
    const auto y = linear_on_all(x, w, bias_of(c), norm, devices, outcome);
    if (!outcome.status.ok()) return;
    const Json result = to_json(y, {x.rows(), codes.rows()});
    if (outcome.out.contains("y") && outcome.out["y"] != result) {
      outcome.problem = "ternary2 and ternary3 disagree";
    }
    outcome.out["y"] = result;
    std::vector<int8_t> q(x.data.size());
    std::vector<float> s(static_cast<size_t>(x.rows()));
    outcome.status = absmax_int8(normed.floats().data(), x.rows(), x.cols(), q.data(), s.data());
    outcome.out["act_codes"] = to_json(q, x.shape);
    outcome.out["act_scale"] = to_json(s, {x.rows(), 1});
    outcome.out["acc"] = exact_sums(tensor(outcome.out["act_codes"]), w, devices, outcome);
  }
}

void run_int8_linear(const Case& c, Devices& devices, Outcome& outcome) {
  only_default_eps(c, "act_eps", outcome);
  const Tensor x = c.in_tensor("x");
  const Tensor codes = c.in_tensor("codes");
  const std::string act = c.text("act", "int8");
  if (act != "int8" && act != "float") {
    outcome.status = Status::error(MOE_ERR_RANGE, "no activation precision %s", act.c_str());
    return;
  }
  const PackedMatrix w(FormatId::kInt8, codes.codes(), codes.rows(), codes.cols(),
                       act == "int8" ? ActPrecision::kA8 : ActPrecision::kF32, ScaleKind::kRow,
                       c.in_floats("row_scale"));
  const auto y = linear_on_all(x, w, bias_of(c), Norm(), devices, outcome);
  outcome.out["y"] = to_json(y, {x.rows(), codes.rows()});
}

}  // namespace

void add_quant(Runners& runners) {
  runners["absmean_ternary"] = run_absmean;
  runners["pack_ternary_hf"] = run_pack;
  runners["unpack_ternary_hf"] = run_unpack;
  runners["absmax_int8"] = run_absmax;
  runners["int8_rows"] = run_int8_rows;
  runners["bitlinear"] = run_bitlinear;
  runners["int8_linear"] = run_int8_linear;
}

}  // namespace moe::golden
