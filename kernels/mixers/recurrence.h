// SPDX-License-Identifier: MIT
#pragma once
// The recurrence of token mixers with a matrix as state: the gated delta rule (arXiv 2412.06464,
// eq. 10), Kimi's delta rule with a decay for each key (arXiv 2510.26692, eq. 1) and Mamba2 (arXiv
// 2405.21060, section 7) are instances of it. Plain C headers only.

#include <stddef.h>
#include <stdint.h>

#include "kernels/mixers/groups.h"

namespace moe {

/// One head of one text through consecutive tokens, with a state S (n_keys, n_values). Per token:
///   S = decay S;  w = value - S^T key (delta) or value;  w = rate w
///   S = S + key w^T;  out = S^T query (+ skip value)
/// The delta rules have `delta`, and rate = beta. In Mamba2 key is B, query C, value x, rate the
/// time step and skip D.
struct Recurrence {
  int32_t n_rows = 0;  // tokens
  int32_t n_keys = 0;
  int32_t n_values = 0;  // columns, which are independent of each other
  bool delta = false;
  bool decay_by_key = false;   // a decay for each row of S, else one for all; only with `delta`
  const float* key = nullptr;  // (n_rows, n_keys), rows ld_key apart
  const float* query = nullptr;
  const float* value = nullptr;  // (n_rows, n_values)
  const float* decay = nullptr;  // (n_rows), or by key, rows ld_key apart
  const float* rate = nullptr;   // (n_rows)
  const float* skip = nullptr;   // one number, or null
  const float* from = nullptr;   // S before, rows n_values apart; may be `to`; null: zeros
  float* to = nullptr;           // S after
  float* out = nullptr;          // (n_rows, n_values); may be `value` if ld_out is ld_value
  int64_t ld_key = 0;            // of keys, queries and decays by key
  int64_t ld_value = 0;
  int64_t ld_out = 0;
};

/// The definition, which run_recurrence() follows bit for bit: a column's sums are one chain of
/// fused multiply-adds over ascending keys, from 0. A number of the state that is NaN or infinite
/// never becomes finite again, and makes every later output of its column NaN or infinite.
inline void define_recurrence(const Recurrence& r) {
  for (int64_t i = 0; i < int64_t{r.n_keys} * r.n_values; ++i) {
    r.to[i] = r.from != nullptr ? r.from[i] : 0.0f;
  }
  for (int64_t t = 0; t < r.n_rows; ++t) {
    const float* key = r.key + t * r.ld_key;
    const float* query = r.query + t * r.ld_key;
    for (int64_t c = 0; c < r.n_values; ++c) {
      const float value = r.value[t * r.ld_value + c];
      float known = 0;
      for (int64_t i = 0; i < r.n_keys; ++i) {
        float& s = r.to[i * r.n_values + c];
        s = r.decay[r.decay_by_key ? t * r.ld_key + i : t] * s;
        known = __builtin_fmaf(key[i], s, known);
      }
      const float write = r.rate[t] * (r.delta ? value - known : value);
      float out = 0;
      for (int64_t i = 0; i < r.n_keys; ++i) {
        float& s = r.to[i * r.n_values + c];
        s = __builtin_fmaf(key[i], write, s);
        out = __builtin_fmaf(query[i], s, out);
      }
      r.out[t * r.ld_out + c] = r.skip != nullptr ? __builtin_fmaf(*r.skip, value, out) : out;
    }
  }
}

/// V vectors of 16 columns from `column` on; a single one may have fewer lanes. The state is read
/// and written once per token: while a row of it is in registers it takes the token's write, gives
/// to the output, decays for the next token and gives to what is known of that one.
template <class Isa, bool kDelta, bool kByKey, int V>
class RecurrentColumns {
 public:
  MOE_HD RecurrentColumns(const Recurrence& r, int64_t column, int lanes)
      : r_(r), column_(column), lanes_(lanes) {}

  MOE_HD_CALL void run() {
    begin();
    for (int64_t t = 0; t < r_.n_rows; ++t) {
      F value[kSize];
      const F rate = Isa::set1(r_.rate[t]);
      for (int v = 0; v < V; ++v) {
        value[v] = load(r_.value + t * r_.ld_value + column_, v);
        write_[v] = Isa::mul(rate, kDelta ? Isa::sub(value[v], known_[v]) : value[v]);
      }
      t + 1 < r_.n_rows ? pass<true>(t) : pass<false>(t);
      for (int v = 0; v < V; ++v) {
        if (r_.skip != nullptr) out_[v] = Isa::fma(Isa::set1(*r_.skip), value[v], out_[v]);
        store(r_.out + t * r_.ld_out + column_, v, out_[v]);
      }
    }
  }

 private:
  using F = typename Isa::F;
  static constexpr size_t kSize = V;

  MOE_HD F load(const float* p, int v) const {
    return V > 1 || lanes_ == 16 ? Isa::load(p + 16 * v) : Isa::load_n(p, lanes_);
  }
  MOE_HD void store(float* p, int v, F x) const {
    if (V > 1 || lanes_ == 16) {
      Isa::store(p + 16 * v, x);
    } else {
      Isa::store_n(p, x, lanes_);
    }
  }

  // The decay of a token, or of its key i.
  MOE_HD F decay(int64_t t, int64_t i) const {
    return Isa::set1(r_.decay[kByKey ? t * r_.ld_key + i : t]);
  }

  // The first token's decay, and what is known of it.
  MOE_HD void begin() {
    F known[kSize];
    for (int v = 0; v < V; ++v) known[v] = Isa::zero();
    const F one = decay(0, 0);
    for (int64_t i = 0; i < r_.n_keys; ++i) {
      const int64_t at = i * r_.n_values + column_;
      const F key = Isa::set1(r_.key[i]);
      const F less = kByKey ? decay(0, i) : one;
      MOE_UNROLL
      for (int v = 0; v < V; ++v) {
        const F s = Isa::mul(less, r_.from != nullptr ? load(r_.from + at, v) : Isa::zero());
        if (kDelta) known[v] = Isa::fma(key, s, known[v]);
        store(r_.to + at, v, s);
      }
    }
    for (int v = 0; v < V; ++v) known_[v] = known[v];
  }

  // kNext: there is a token after t.
  template <bool kNext>
  MOE_HD void pass(int64_t t) {
    F out[kSize];
    F known[kSize];
    F write[kSize];
    MOE_UNROLL
    for (int v = 0; v < V; ++v) {
      out[v] = known[v] = Isa::zero();
      write[v] = write_[v];
    }
    const float* keys = r_.key + t * r_.ld_key;
    const float* queries = r_.query + t * r_.ld_key;
    const int64_t next = kNext ? t + 1 : t;
    const F one = decay(next, 0);
    for (int64_t i = 0; i < r_.n_keys; ++i) {
      float* at = r_.to + i * r_.n_values + column_;
      const F key = Isa::set1(keys[i]);
      const F query = Isa::set1(queries[i]);
      const F less = kByKey ? decay(next, i) : one;
      MOE_UNROLL
      for (int v = 0; v < V; ++v) {
        F s = Isa::fma(key, write[v], load(at, v));
        out[v] = Isa::fma(query, s, out[v]);
        if (kNext) s = Isa::mul(less, s);
        if (kNext && kDelta) known[v] = Isa::fma(Isa::set1(keys[r_.ld_key + i]), s, known[v]);
        store(at, v, s);
      }
    }
    for (int v = 0; v < V; ++v) {
      out_[v] = out[v];
      known_[v] = known[v];
    }
  }

  const Recurrence& r_;
  int64_t column_;
  int lanes_;
  F write_[kSize];
  F out_[kSize];
  F known_[kSize];
};

/// Follows the definition, for r.delta == kDelta and r.decay_by_key == kByKey. The groups share the
/// columns.
template <class Isa, bool kDelta, bool kByKey = false>
MOE_HD_CALL void run_recurrence(const Recurrence& r) {
  // As many sums as fit into registers; a thread that is a lane has columns enough beside its own.
  constexpr int kVectors = Isa::kSums >= 16 ? 4 : Isa::kMaxTokens > 1 ? 2 : 1;
  int32_t c = first_column<Isa>();
  for (; kVectors > 1 && c + 16 * kVectors <= r.n_values; c += 16 * kVectors) {
    RecurrentColumns<Isa, kDelta, kByKey, kVectors>(r, c, 16).run();
  }
  for (; c < r.n_values; c += column_step<Isa>()) {
    const int lanes = r.n_values - c < 16 ? r.n_values - c : 16;
    RecurrentColumns<Isa, kDelta, kByKey, 1>(r, c, lanes).run();
  }
}

}  // namespace moe
