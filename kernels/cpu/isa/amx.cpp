// int8 matrix products on AMX: a register tile is 16 rows of 64 bytes. 16 x 64 weights of an int8
// tile are stored in a register tile's layout; ternary codes are decoded to a panel of that layout.
//
// Activation rows are split into groups of up to 32 (two tiles) of similar size; the codes of a
// group are stored 64 by 64: (k / 64, row, 64). Sums are exact, so the results equal those of every
// other instruction set.
// of every other instruction set.
#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/isa/avx512vnni.h"

namespace moe {

extern const CpuKernels kernels_avx512vnni;

namespace {

#include "kernels/cpu/generic/kernels.inc"

constexpr int32_t kFewRows = 4;
constexpr int32_t kGroupRows = 32;         // two tiles of activations
constexpr int32_t kBlockGroups = 4;        // groups multiplied with one panel
constexpr int32_t kPanelBytes = 16 << 10;  // decoded at once: a third of L1
constexpr int32_t kAheadBytes = 2 << 10;
constexpr int32_t kGroupSums = kGroupRows * 2 * kTileRows;

/// Rows in groups of nearly equal size; n_rows is above kFewRows.
struct Groups {
  MOE_INLINE int32_t count(int32_t n_rows) { return (n_rows + kGroupRows - 1) / kGroupRows; }
  MOE_INLINE int32_t begin(int32_t n_rows, int32_t group) {
    return static_cast<int32_t>(int64_t{n_rows} * group / count(n_rows));
  }
  MOE_INLINE int32_t size(int32_t n_rows, int32_t group) {
    return begin(n_rows, group + 1) - begin(n_rows, group);
  }
  MOE_INLINE int32_t largest(int32_t n_rows) {
    return (n_rows + count(n_rows) - 1) / count(n_rows);
  }
  MOE_INLINE int32_t of(int32_t n_rows, int32_t row) {
    int32_t group = static_cast<int32_t>(int64_t{row} * count(n_rows) / n_rows);
    while (begin(n_rows, group + 1) <= row) ++group;
    return group;
  }
};

/// Destination of a row's codes: 64 consecutive ones every 64 * size bytes.
struct GroupedBy64 {
  int8_t* codes;
  int64_t step;
  GroupedBy64(const LinearInput& in, int32_t row) {
    const int32_t group = Groups::of(in.n_rows, row);
    const int32_t begin = Groups::begin(in.n_rows, group);
    codes = in.codes + int64_t{begin} * in.padded_cols + int64_t{64} * (row - begin);
    step = Groups::size(in.n_rows, group);
  }
  inline __attribute__((always_inline)) void put(int32_t k, const int8_t* part) const {
    __builtin_memcpy(codes + k * step, part, 64);
  }
  void get(int32_t k, int8_t* part) const { __builtin_memcpy(part, codes + k * step, 64); }
};

/// Some compilers' intrinsics do not declare that they read memory: gcc 12 would drop the stores.
MOE_INLINE void finish_stores(const void* memory) {
  __asm__ volatile("" : : "r"(memory) : "memory");
}

struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Registers 0..3 hold sums. With two tiles of rows, 4 and 5 hold rows and 6 and 7 weights; with
/// one (second_rows 0), 4 holds rows and 5, 6 and 7 weights.
inline void configure(int32_t first_rows, int32_t second_rows) {
  TileShapes shapes;
  const bool two = second_rows > 0;
  const int32_t rows[8] = {first_rows,
                           first_rows,
                           two ? second_rows : first_rows,
                           two ? second_rows : first_rows,
                           first_rows,
                           two ? second_rows : kTileRows,
                           kTileRows,
                           kTileRows};
  for (int i = 0; i < 8; ++i) {
    shapes.rows[i] = static_cast<uint8_t>(rows[i]);
    shapes.row_bytes[i] = 64;
  }
  finish_stores(&shapes);
  _tile_loadconfig(&shapes);
}

// Conversion of each format's weights to register tiles: inputs [0, n) as 64 bytes per four.
// Weights after the last input are multiplied with zero activations. Prefetches at `ahead` bytes.

struct Ternary2Panel {
  static constexpr bool kInPlace = false;
  MOE_INLINE const uint8_t* at(const uint8_t* tile, int32_t k) { return Ternary2Sums::at(tile, k); }
  MOE_INLINE void decode(const uint8_t* w, int32_t n, int64_t ahead, uint8_t* panel) {
    const __m512i one = _mm512_set1_epi8(1);
    for (int32_t k = 0; k < n; k += 16, w += 64, panel += 256) {
      Isa::prefetch_far(w + ahead);
      const Isa::B v = Isa::load_block(w);
      _mm512_store_si512(panel, _mm512_sub_epi8(Isa::field<0>(v).v, one));
      _mm512_store_si512(panel + 64, _mm512_sub_epi8(Isa::field<1>(v).v, one));
      _mm512_store_si512(panel + 128, _mm512_sub_epi8(Isa::field<2>(v).v, one));
      _mm512_store_si512(panel + 192, _mm512_sub_epi8(Isa::field<3>(v).v, one));
    }
  }
};

struct Ternary3Panel {
  static constexpr bool kInPlace = false;
  MOE_INLINE const uint8_t* at(const uint8_t* tile, int32_t k) { return Ternary3Sums::at(tile, k); }
  MOE_INLINE void decode(const uint8_t* w, int32_t n, int64_t ahead, uint8_t* panel) {
    const __m512i one = _mm512_set1_epi8(1);
    for (int32_t k = 0; k < n; k += kTernary3Segment, panel += 16 * kTernary3Segment) {
      const int32_t inputs = n - k < kTernary3Segment ? n - k : kTernary3Segment;
      for (int32_t i = 0; i < inputs; i += kTernary3Cols, w += kBlockBytes) {
        Isa::prefetch_far(w + ahead);
        Isa::B digits[5];
        Isa::unpack3(Isa::load_block(w), digits);
        uint8_t* to = panel + 16 * i;
        MOE_UNROLL
        for (int f = 0; f < 4; ++f) {
          _mm512_store_si512(to + 64 * f, _mm512_sub_epi8(digits[f].v, one));
        }
        // A segment's last block has no fifth digit.
        if (i + kTernary3Cols <= kTernary3Segment) {
          _mm512_store_si512(to + 256, _mm512_sub_epi8(digits[4].v, one));
        }
      }
    }
  }
};

/// int8 weights are already in the right layout; only an incomplete last register tile is copied,
/// which keeps its load within the matrix.
struct Int8Panel {
  static constexpr bool kInPlace = true;
  MOE_INLINE const uint8_t* at(const uint8_t* tile, int32_t k) { return Int8Sums::at(tile, k); }
  MOE_INLINE void decode(const uint8_t* w, int32_t n, int64_t ahead, uint8_t* panel) {
    for (int32_t i = 0; i < (n + 3) / 4; ++i) {
      Isa::prefetch_far(w + int64_t{64} * i + ahead);
      _mm512_store_si512(panel + int64_t{64} * i, Isa::load_block(w + int64_t{64} * i).v);
    }
  }
};

/// Tiles `tile`, `tile + step` .. of the matrix and inputs [begin, end) of a block with common
/// scales.
struct Panel {
  int64_t tile;
  int64_t step;
  int32_t n_tiles;
  int32_t begin;
  int32_t end;
  int32_t block_begin;
  int32_t block_end;
};

struct Scratch {
  alignas(64) uint8_t panel[kPanelBytes];
  alignas(64) int32_t sums[kBlockGroups * kGroupSums];  // (group, row, tile of the panel, 16)
  alignas(64) float totals[kBlockGroups * kGroupSums];
};

/// Location of a panel's register tiles: 1 KiB for 64 inputs of 16 rows.
struct PanelWeights {
  const uint8_t* at;
  int64_t stride;  // between tiles
  int64_t ahead;   // prefetch distance; 0: already prefetched
};

/// Multiplies one group of rows with one panel, X tiles of rows and R of weights: X is 2 and R 2 or
/// 1, or X is 1 and R 4 or 1.
template <int X, int R>
struct GroupProduct {
  const int8_t* x;
  int64_t x_step;  // bytes per 64 inputs
  int64_t x_second;
  int32_t* sums;  // (row, R, 16)
  int64_t sums_second;

  static constexpr int64_t kStride = R * kTileRows * 4;

  inline __attribute__((always_inline)) void clear() const {
    _tile_zero(0);
    if (R > 1) _tile_zero(1);
    if (X == 2 || R == 4) _tile_zero(2);
    if (X * R == 4) _tile_zero(3);
  }
  inline __attribute__((always_inline)) void load() const {
    _tile_loadd(0, sums, kStride);
    if (R > 1) _tile_loadd(1, sums + kTileRows, kStride);
    if (X == 2) _tile_loadd(2, sums + sums_second, kStride);
    if (X == 2 && R == 2) _tile_loadd(3, sums + sums_second + kTileRows, kStride);
    if (R == 4) _tile_loadd(2, sums + 2 * kTileRows, kStride);
    if (R == 4) _tile_loadd(3, sums + 3 * kTileRows, kStride);
  }
  inline __attribute__((always_inline)) void store() const {
    _tile_stored(0, sums, kStride);
    if (R > 1) _tile_stored(1, sums + kTileRows, kStride);
    if (X == 2) _tile_stored(2, sums + sums_second, kStride);
    if (X == 2 && R == 2) _tile_stored(3, sums + sums_second + kTileRows, kStride);
    if (R == 4) _tile_stored(2, sums + 2 * kTileRows, kStride);
    if (R == 4) _tile_stored(3, sums + 3 * kTileRows, kStride);
  }

  /// 64 inputs.
  inline __attribute__((always_inline)) void step(const int8_t* from, const uint8_t* w,
                                                  int64_t stride) const {
    _tile_loadd(6, w, 64);
    _tile_loadd(4, from, 64);
    _tile_dpbssd(0, 4, 6);
    if (R > 1) {
      _tile_loadd(7, w + stride, 64);
      _tile_dpbssd(1, 4, 7);
    }
    if (X == 2) {
      _tile_loadd(5, from + x_second, 64);
      _tile_dpbssd(2, 5, 6);
      if (R > 1) _tile_dpbssd(3, 5, 7);
    }
    if (R == 4) {
      _tile_loadd(5, w + 2 * stride, 64);
      _tile_dpbssd(2, 4, 5);
      _tile_loadd(6, w + 3 * stride, 64);
      _tile_dpbssd(3, 4, 6);
    }
  }

  inline void run(const PanelWeights& weights, int32_t n_steps, bool add) const {
    add ? load() : clear();
    const uint8_t* w = weights.at;
    const int8_t* from = x;
    for (int32_t i = 0; i < n_steps; ++i, from += x_step, w += kTileRows * 64) {
      step(from, w, weights.stride);
      if (weights.ahead == 0) continue;
      for (int r = 0; r < R; ++r) {
        const uint8_t* next = w + r * weights.stride + weights.ahead;
        for (int j = 0; j < kTileRows; ++j) Isa::prefetch_far(next + 64 * j);
      }
    }
    store();
  }
};

/// Tiles of the matrix times up to kBlockGroups groups of rows. Two register tiles of rows use
/// pairs of tiles; one uses four distant tiles, since few rows are memory-bound and four streams
/// are faster than one.
template <class Format>
class TilesProduct {
 public:
  TilesProduct(const LinearArgs& args, Scratch& scratch)
      : first_(args), a_(args), m_(*args.weight), in_(*args.input), scratch_(scratch) {
    const bool grouped = m_.scale_kind == ScaleKind::kGroup;
    const bool whole = in_.act == ActPrecision::kA8;
    scale_inside_ = whole || grouped;
    block_ = grouped ? m_.group : whole ? m_.cols : kActBlock;
    const int32_t largest = Groups::largest(in_.n_rows);
    first_rows_ = largest > kTileRows ? (largest + 1) / 2 : largest;
    two_ = largest > first_rows_;
    const int64_t n_tiles = a_.tile_end - a_.tile_begin;
    set_size_ = two_ ? 2 : 4;
    sets_ = n_tiles / set_size_;
    chunk_ = kPanelBytes / kTileRows / set_size_;
    configure(first_rows_, largest - first_rows_);
  }

  /// All tiles, including the twin's, times groups [first, last): each set of tiles is multiplied
  /// with all of them while it is in L2.
  void run(int32_t first, int32_t last) {
    Panel panel = {};
    panel.tile = a_.tile_begin;
    begin_tiles(panel);
    do {
      for (const LinearArgs* p = &first_; p != nullptr; p = p->twin) {
        take(*p);
        for (int32_t g = first; g < last; g += kBlockGroups) {
          multiply_block(panel, g, last - g < kBlockGroups ? last - g : kBlockGroups);
        }
      }
    } while (next_tiles(panel));
  }

 private:
  void take(const LinearArgs& args) {
    if (first_.twin == nullptr) return;
    a_ = args;
    m_ = *args.weight;
  }
  void multiply_block(Panel& panel, int32_t first_group, int32_t n_groups) {
    first_group_ = first_group;
    begin_block(panel, 0);
    do {
      PanelWeights w = weights(panel);
      for (int32_t g = 0; g < n_groups; ++g, w.ahead = 0) {
        multiply(panel, w, g);
        if (panel.end == panel.block_end) scale(panel, g);
      }
    } while (advance(panel));
  }

  // Sets of tiles first, then the remaining tiles one by one.
  int64_t rest_begin() const { return a_.tile_begin + sets_ * set_size_; }
  void begin_tiles(Panel& p) const {
    const bool set = sets_ > 0 && p.tile < (two_ ? rest_begin() : a_.tile_begin + sets_);
    p.n_tiles = set ? set_size_ : 1;
    p.step = two_ ? 1 : sets_;
  }
  bool next_tiles(Panel& p) const {
    p.tile += two_ ? p.n_tiles : 1;
    if (!two_ && p.tile == a_.tile_begin + sets_) p.tile = rest_begin();
    if (p.tile >= a_.tile_end) return false;
    begin_tiles(p);
    return true;
  }
  void begin_block(Panel& p, int32_t k) const {
    p.block_begin = k;
    p.block_end = m_.cols - k < block_ ? m_.cols : k + block_;
    begin_chunk(p, k);
  }
  void begin_chunk(Panel& p, int32_t k) const {
    p.begin = k;
    p.end = p.block_end - k < chunk_ ? p.block_end : k + chunk_;
  }
  bool advance(Panel& p) const {
    if (p.end < p.block_end) {
      begin_chunk(p, p.end);
    } else if (p.block_end < m_.cols) {
      begin_block(p, p.block_end);
    } else {
      return false;
    }
    return true;
  }

  PanelWeights weights(const Panel& p) const {
    const uint8_t* tile = Format::at(m_.tiles + p.tile * m_.tile_stride, p.begin);
    const int32_t n = p.end - p.begin;
    const int64_t ahead = two_ ? 2 * m_.tile_stride : kAheadBytes;
    const int64_t stride = p.step * m_.tile_stride;
    if (Format::kInPlace && n % 64 == 0) return {tile, stride, ahead};
    const int64_t panel_stride = int64_t{chunk_} * kTileRows;
    for (int r = 0; r < p.n_tiles; ++r) {
      Format::decode(tile + r * stride, n, ahead, scratch_.panel + r * panel_stride);
    }
    finish_stores(scratch_.panel);
    return {scratch_.panel, panel_stride, 0};
  }

  /// Sums that are scaled immediately share one buffer, which stays in L1.
  int32_t* sums_of(const Panel& p, int32_t g) const {
    const bool at_once = p.block_end - p.block_begin <= chunk_;
    return scratch_.sums + (at_once ? 0 : g) * kGroupSums;
  }

  template <int X, int R>
  inline void multiply_with(const Panel& p, const PanelWeights& w, int32_t g) const {
    const int32_t group = first_group_ + g;
    const int32_t size = Groups::size(in_.n_rows, group);
    GroupProduct<X, R> product;
    product.x = in_.codes + int64_t{Groups::begin(in_.n_rows, group)} * in_.padded_cols +
                int64_t{p.begin} * size;
    product.x_step = int64_t{64} * size;
    product.x_second = int64_t{64} * first_rows_;
    product.sums = sums_of(p, g);
    product.sums_second = int64_t{R} * kTileRows * first_rows_;
    product.run(w, (p.end - p.begin + 63) / 64, p.begin > p.block_begin);
  }
  void multiply(const Panel& p, const PanelWeights& w, int32_t g) const {
    const bool set = p.n_tiles > 1;
    if (two_) {
      set ? multiply_with<2, 2>(p, w, g) : multiply_with<2, 1>(p, w, g);
    } else {
      set ? multiply_with<1, 4>(p, w, g) : multiply_with<1, 1>(p, w, g);
    }
  }

  /// Scales the sums of one block of inputs in the same order as integer_tile().
  void scale(const Panel& p, int32_t g) const {
    const bool last = p.block_end == m_.cols;
    if (p.n_tiles == 1) {
      last ? scale_tiles<1, true>(p, g) : scale_tiles<1, false>(p, g);
    } else if (two_) {
      last ? scale_tiles<2, true>(p, g) : scale_tiles<2, false>(p, g);
    } else {
      last ? scale_tiles<4, true>(p, g) : scale_tiles<4, false>(p, g);
    }
  }

  template <int R, bool last>
  inline void scale_tiles(const Panel& p, int32_t g) const {
    const int32_t group = first_group_ + g;
    const int32_t first_row = Groups::begin(in_.n_rows, group);
    const int32_t size = Groups::size(in_.n_rows, group);
    const int64_t n_scales = in_.n_scales;
    const float* sx =
        in_.scales + first_row * n_scales + (n_scales == 1 ? 0 : p.block_begin / kActBlock);
    const bool grouped = m_.scale_kind == ScaleKind::kGroup;
    Lanes<Isa::F, R> sw;
    MOE_UNROLL
    for (int r = 0; r < R; ++r) {
      sw[r] = weight_scales(m_, p.tile + r * p.step, grouped ? p.block_begin / m_.group : 0);
    }
    const Isa::F one = Isa::set1(1.0f);
    const int32_t* sums = sums_of(p, g);
    float* totals = scratch_.totals + g * kGroupSums;
    for (int32_t t = 0; t < size; ++t) {
      MOE_UNROLL
      for (int r = 0; r < R; ++r) {
        const int at = (R * t + r) * kTileRows;
        const Isa::F before = p.block_begin == 0 ? Isa::zero() : Isa::load(totals + at);
        const Isa::F scales = Isa::mul(Isa::set1(sx[t * n_scales]), scale_inside_ ? sw[r] : one);
        const Isa::F total = Isa::fma(Isa::to_float(Isa::load(sums + at)), scales, before);
        if constexpr (last) {
          const Isa::F v = scale_inside_ ? total : Isa::mul(total, sw[r]);
          finish(a_, p.tile + r * p.step, first_row + t, v);
        } else {
          Isa::store(totals + at, total);
        }
      }
    }
  }

  const LinearArgs& first_;
  LinearArgs a_;  // this or its twin
  Matrix m_;
  const LinearInput in_;
  Scratch& scratch_;
  bool scale_inside_;
  bool two_;  // a group's rows need a second register tile
  int32_t block_;
  int32_t chunk_;       // inputs per panel
  int32_t first_rows_;  // of a group, in its first register tile
  int32_t set_size_;    // tiles of the matrix multiplied together
  int64_t sets_;
  int32_t first_group_ = 0;
};

/// The codes of a chunk of rows stay in L2.
template <class Format>
void many_rows_on_tiles(const LinearArgs& a) {
  Scratch scratch;
  TilesProduct<Format> product(a, scratch);
  const LinearInput& in = *a.input;
  const int32_t n_groups = Groups::count(in.n_rows);
  const int64_t block_bytes = int64_t{kBlockGroups} * kGroupRows * in.padded_cols;
  const int32_t chunk =
      kBlockGroups *
      (block_bytes < kChunkBytes ? static_cast<int32_t>(kChunkBytes / block_bytes) : 1);
  for (int32_t first = 0; first < n_groups; first += chunk) {
    product.run(first, n_groups - first < chunk ? n_groups : first + chunk);
  }
  _tile_release();
}

// Weights with scales in the tile have one per 32 inputs or fewer, too few for a register tile:
// they use AVX-512, with the same activation codes.

/// Tokens of a group of `size` rows, stored as in GroupedBy64.
struct TokensBy64 {
  static constexpr int kQuad = 4;
  static constexpr int kToken = 64;
  const int8_t* codes;
  int64_t size;
  inline __attribute__((always_inline)) const int8_t* at(int32_t k) const {
    return codes + k / 64 * 64 * size + k % 64;
  }
};

template <class Layout, int T>
int32_t rows_in_groups(const LinearArgs& a, int64_t tile, int32_t begin, int32_t size,
                       int32_t row) {
  const LinearInput& in = *a.input;
  for (; row + T <= size; row += T) {
    const int8_t* codes = in.codes + int64_t{begin} * in.padded_cols + int64_t{64} * row;
    group_tile<Layout, T, 1>(a, tile, 1, begin + row, TokensBy64{codes, size});
  }
  return row;
}

template <class Layout>
void many_rows_in_groups(const LinearArgs& a) {
  const int32_t n_groups = Groups::count(a.input->n_rows);
  for (int32_t first = 0; first < n_groups; first += kBlockGroups) {
    const int32_t last = n_groups - first < kBlockGroups ? n_groups : first + kBlockGroups;
    for (int64_t tile = a.tile_begin; tile < a.tile_end; ++tile) {
      for (const LinearArgs* p = &a; p != nullptr; p = p->twin) {
        for (int32_t group = first; group < last; ++group) {
          const int32_t begin = Groups::begin(a.input->n_rows, group);
          const int32_t size = Groups::size(a.input->n_rows, group);
          int32_t row = rows_in_groups<Layout, 8>(*p, tile, begin, size, 0);
          row = rows_in_groups<Layout, 4>(*p, tile, begin, size, row);
          rows_in_groups<Layout, 1>(*p, tile, begin, size, row);
        }
      }
    }
  }
}

void quantise_for_tiles(const LinearInput& in, int32_t begin, int32_t end) {
  for (int32_t row = begin; row < end; ++row) quantise_row(in, row, GroupedBy64(in, row));
}

void linear_on_tiles(const LinearArgs& a) {
  if (a.tile_begin >= a.tile_end) return;
  switch (a.weight->format) {
    case FormatId::kTernary2:
      return many_rows_on_tiles<Ternary2Panel>(a);
    case FormatId::kTernary3:
      return many_rows_on_tiles<Ternary3Panel>(a);
    case FormatId::kInt8:
      return many_rows_on_tiles<Int8Panel>(a);
    case FormatId::kInt4:
      return many_rows_in_groups<Int4Layout>(a);
    case FormatId::kInt4Min:
    case FormatId::kInt4K:
      return many_rows_in_groups<Int4MinLayout>(a);
    case FormatId::kFp4:
      return many_rows_in_groups<Fp4Layout>(a);
    case FormatId::kNl4:
    case FormatId::kNf4:
      return many_rows_in_groups<Nl4Layout>(a);
    case FormatId::kInt6K:
      return many_rows_in_groups<Int6KLayout>(a);
    case FormatId::kInt8Group:
      return many_rows_in_groups<Int8GroupLayout>(a);
    default:  // no faster kernel
      return linear_any<GroupedBy64>(a);
  }
}

/// One layout of codes: its writer and its kernels.
struct CodeLayout {
  void (*quantise_rows)(const LinearInput& in, int32_t begin, int32_t end);
  void (*linear)(const LinearArgs& args);
};

/// AVX-512 is faster with few rows, and with a whole group of eight if weights come from memory:
/// AMX loads and decodes as much for eight rows as for sixteen.
CodeLayout layout_of(const LinearInput& in) {
  const bool on_tiles =
      in.n_rows > kFewRows && in.n_rows != Isa::kMaxTokens && in.act != ActPrecision::kF32;
  if (on_tiles) return {quantise_for_tiles, linear_on_tiles};
  return {kernels_avx512vnni.quantise_rows, kernels_avx512vnni.linear};
}

}  // namespace

void quantise_rows_amx(const LinearInput& in, int32_t begin, int32_t end) {
  layout_of(in).quantise_rows(in, begin, end);
}

void linear_amx(const LinearArgs& a) { layout_of(*a.input).linear(a); }

}  // namespace moe
