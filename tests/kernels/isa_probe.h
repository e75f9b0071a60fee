// SPDX-License-Identifier: MIT
// Gives a test access to the primitives of one Isa, which are private to its file. The includer,
// which is compiled with the flags of that instruction set, defines MOE_PROBE_FILE, the file to
// include, and MOE_PROBE_NAME. The file's kernel table is empty here and has another name.
#include MOE_PROBE_FILE

#include "tests/kernels/isa_probe_data.h"

namespace moe {
namespace {

/// Multiplies two blocks with four tokens, with matrix instructions if the Isa has them, else with
/// dot products.
template <class A>
void probe_matrix(const ProbeIn& in, Isa::I (&out)[4]) {
  const int8_t* x = in.bytes;
  const auto* y = reinterpret_cast<const int8_t*>(in.int8);
  const Isa::B first = Isa::load_block(in.int8);
  const Isa::B second = Isa::field<1>(Isa::load_block(in.ternary2));
  if constexpr (A::kMatrix) {
    auto s = A::zero_matrix();
    A::dot_matrix(s, A::pair_blocks(first, second), A::pair_tokens(x, y));
    A::dot_matrix(s, A::pair_blocks(second, A::zero_block()), A::pair_tokens(y, x));
    for (int t = 0; t < 4; ++t) out[t] = A::sums_of_token(s, t);
  } else {
    for (int t = 0; t < 4; ++t, x += 4, y += 4) {
      int32_t sum = 0;
      for (int i = 0; i < 4; ++i) sum += x[i] + 2 * y[i];
      out[t] = Isa::set1_i(-Isa::kInt8Offset * sum);
      out[t] = Isa::dot_int8(out[t], first, Isa::broadcast4(x));
      out[t] = Isa::dot_int8(out[t], second, Isa::broadcast4(y));
      out[t] = Isa::dot_int8(out[t], second, Isa::broadcast4(y));
    }
  }
}

}  // namespace

void MOE_PROBE_NAME(const ProbeIn& in, ProbeOut& out) {
  const Isa::F a = Isa::load(in.a), b = Isa::load(in.b), c = Isa::load(in.c);
  const Isa::I i = Isa::load(in.i), j = Isa::load(in.j);
  int f_row = 0;
  int i_row = 0;
  const auto put = [&](Isa::F v) MOE_PROBE_INLINE { Isa::store(out.f[f_row++], v); };
  const auto put_i = [&](Isa::I v) MOE_PROBE_INLINE { Isa::store(out.i[i_row++], v); };
  const int n_bits = in.bytes[0] & 31;
  uint32_t table[16];
  uint32_t index[16];
  for (int n = 0; n < 16; ++n) {
    table[n] = static_cast<uint32_t>(in.j[n]);
    index[n] = static_cast<uint32_t>(in.bytes[n] & 15);
  }
  put_i(Isa::load_u8(in.int8));
  put_i(Isa::load_u16(in.int8));
  put_i(Isa::look_up(table, index));
  put_i(Isa::shl(i, n_bits));
  put_i(Isa::shr(i, n_bits));
  put(Isa::add(a, b));
  put(Isa::sub(a, b));
  put(Isa::mul(a, b));
  put(Isa::div(a, b));
  put(Isa::fma(a, b, c));
  put(Isa::sqrt(a));
  put(Isa::min(a, b));
  put(Isa::max(a, b));
  put(Isa::abs(a));
  put(Isa::neg(a));
  put(Isa::select(Isa::lt(a, b), a, c));
  put(Isa::select(Isa::le(a, b), a, c));
  put(Isa::select(Isa::eq(a, b), a, c));
  put(Isa::select(Isa::lt(i, j), a, c));
  put(Isa::select(Isa::eq(i, j), a, c));
  put(Isa::load_f16(in.half));
  put(Isa::load_bf16(in.half));
  put(Isa::to_float(i));
  put(Isa::from_bits(i));
  put(Isa::set1(in.a[3]));
  put(Isa::set1(Isa::reduce_add(a)));
  put(Isa::set1(Isa::reduce_max(a)));
  for (int n = 0; n <= 16; ++n) {
    put(Isa::load_n(in.a, n));
    put(Isa::load_f16_n(in.half, n));
    put_i(Isa::load_n(in.i, n));
    put_i(Isa::load_i8_n(in.bytes, n));
    Isa::store_n(out.f[f_row++], a, n);
    Isa::store_f16_n(out.half[n], a, n);
    Isa::store_i8_n(out.bytes[n], Isa::sar<24>(i), n);
  }
  put(Isa::swap_pairs(a));
  Isa::store_f16(out.half[17], a);
  Isa::store_i8(out.bytes[17], Isa::sar<24>(i));
  put_i(Isa::add(i, j));
  put_i(Isa::sub(i, j));
  put_i(Isa::mul(i, j));
  put_i(Isa::min(i, j));
  put_i(Isa::max(i, j));
  put_i(Isa::bit_and(i, j));
  put_i(Isa::bit_or(i, j));
  put_i(Isa::bit_xor(i, j));
  put_i(Isa::shl<0>(i));
  put_i(Isa::shr<0>(i));
  put_i(Isa::sar<0>(i));
  put_i(Isa::shl<7>(i));
  put_i(Isa::shr<7>(i));
  put_i(Isa::sar<7>(i));
  put_i(Isa::select(Isa::lt(i, j), i, j));
  put_i(Isa::bits(a));
  put_i(Isa::set1_i(Isa::reduce_add(i)));
  put_i(Isa::set1_i(Isa::reduce_max(i)));
  put_i(Isa::set1_i(Isa::count(Isa::lt(i, j))));
  put_i(Isa::load_i8(in.bytes));
  // to_int() is only defined for values that fit in an int32.
  const Isa::F big = Isa::set1(2e9f);
  put_i(Isa::to_int(Isa::select(Isa::lt(Isa::abs(a), big), a, Isa::zero())));

  const Isa::X4 x = Isa::broadcast4(in.bytes);
  const Isa::B two = Isa::load_block(in.ternary2);
  Isa::S s = Isa::zero_sum();
  for (int n = 0; n < 64; n += 4) {
    s = Isa::dot_small(s, Isa::field<0>(two), x);
    s = Isa::dot_small(s, Isa::field<1>(two), x);
    s = Isa::dot_small(s, Isa::field<2>(two), x);
    s = Isa::dot_small(s, Isa::field<3>(two), x);
  }
  put_i(Isa::widen(s));
  s = Isa::zero_sum();
  constexpr int kPlace = Isa::kInPlace - 1;
  for (int n = 0; n < 8; ++n) s = Isa::dot_small(s, Isa::field<3, kPlace>(two), x);
  put_i(Isa::sar<2 * kPlace>(Isa::widen(s)));
  Isa::B digits[5];
  Isa::unpack3(Isa::load_block(in.ternary3), digits);
  for (int f = 0; f < 5; ++f) put_i(Isa::widen(Isa::dot_small(Isa::zero_sum(), digits[f], x)));
  int32_t x_sum = 0;
  for (int n = 0; n < 4; ++n) x_sum += in.bytes[n];
  put_i(Isa::sub(Isa::dot_int8(i, Isa::load_block(in.int8), x),
                 Isa::set1_i(Isa::kInt8Offset * x_sum)));
  put_i(Isa::block_lanes(in.int8));
  Isa::I sums[4];
  probe_matrix<Isa>(in, sums);
  for (const Isa::I& sum : sums) put_i(sum);
  // Both halves of each byte of a block.
  const auto put_b = [&](Isa::B block) MOE_PROBE_INLINE {
    put_i(Isa::widen(Isa::dot_small(Isa::zero_sum(), Isa::nibble<0>(block), x)));
    put_i(Isa::widen(Isa::dot_small(Isa::zero_sum(), Isa::nibble<1>(block), x)));
  };
  const Isa::B some = Isa::load_block(in.int8);
  const Isa::B others = Isa::load_block(in.ternary3);
  put_b(Isa::rows_above<1>(some));
  put_b(Isa::rows_above<2>(some));
  put_b(Isa::bit_xor(some, others));
  Isa::B a1 = some;
  Isa::B b1 = others;
  Isa::exchange<1>(a1, b1);
  put_b(a1);
  put_b(b1);
  Isa::B a2 = some;
  Isa::B b2 = others;
  Isa::exchange<2>(a2, b2);
  put_b(a2);
  put_b(b2);
  out.n_f = f_row;
  out.n_i = i_row;
}

}  // namespace moe
