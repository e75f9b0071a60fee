// SPDX-License-Identifier: MIT
// group_pairs(), combine(), merge_rows() and count_routing().

#include <algorithm>
#include <random>

#include "kernels/cuda/ops.h"
#include "kernels/math.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/random_floats.h"

namespace moe::cuda {
namespace {

// Random choices: distinct experts per token, some slots unused, some dropped.
struct Choices {
  int32_t n_tokens;
  int32_t max_k;
  int32_t n_experts;
  std::vector<int32_t> expert;
  std::vector<float> weight;
  std::vector<uint8_t> kept;
  std::vector<int32_t> count;

  Choices(int32_t tokens, int32_t k, int32_t experts, unsigned seed, bool all = false)
      : n_tokens(tokens), max_k(k), n_experts(experts) {
    std::mt19937 rng(seed);
    std::vector<int32_t> order(static_cast<size_t>(experts));
    for (int32_t e = 0; e < experts; ++e) order[static_cast<size_t>(e)] = e;
    for (int32_t t = 0; t < tokens; ++t) {
      std::shuffle(order.begin(), order.end(), rng);
      const int32_t n = all ? k : static_cast<int32_t>(rng() % static_cast<unsigned>(k + 1));
      count.push_back(n);
      for (int32_t j = 0; j < k; ++j) {
        const bool keep = j < n && (all || rng() % 4 != 0);
        expert.push_back(order[static_cast<size_t>(j)]);
        kept.push_back(keep ? 1 : 0);
        weight.push_back(keep ? static_cast<float>(rng() % 1000) / 999.0f : 0.0f);
      }
    }
  }
};

struct DeviceChoices {
  OnDevice<int32_t> expert;
  OnDevice<float> weight;
  OnDevice<uint8_t> kept;
  OnDevice<int32_t> count;
  Routing routing;
  explicit DeviceChoices(const Choices& c)
      : expert(c.expert),
        weight(c.weight),
        kept(c.kept),
        count(c.count),
        routing{c.n_tokens, c.max_k, expert, weight, kept, count, nullptr} {}
};

struct Lists {
  std::vector<int32_t> group, begin, token, expert, place;
};

Lists host_lists(const Choices& c) {
  Lists out;
  out.place.assign(c.expert.size(), -1);
  for (int32_t e = 0; e < c.n_experts; ++e) {
    const auto before = out.token.size();
    for (int32_t t = 0; t < c.n_tokens; ++t) {
      for (int32_t j = 0; j < c.count[static_cast<size_t>(t)]; ++j) {
        const auto at = static_cast<size_t>(t * c.max_k + j);
        if (c.kept[at] == 0 || c.expert[at] != e) continue;
        out.place[at] = static_cast<int32_t>(out.token.size());
        out.token.push_back(t);
        out.expert.push_back(e);
      }
    }
    if (out.token.size() == before) continue;
    out.group.push_back(e);
    out.begin.push_back(static_cast<int32_t>(before));
  }
  out.begin.push_back(static_cast<int32_t>(out.token.size()));
  return out;
}

template <class T>
void expect_begins_with(const OnDevice<T>& found, const std::vector<T>& expected,
                        const char* what) {
  std::vector<T> v = found.values();
  ASSERT_GE(v.size(), expected.size());
  v.resize(expected.size());
  EXPECT_EQ(v, expected) << what;
}

TEST(CudaPairs, SortedByExpertThenToken) {
  const Choices cases[] = {
      {0, 2, 5, 1},     {1, 1, 1, 2},           {1, 8, 64, 3, true}, {3, 4, 300, 4},
      {40, 3, 7, 5},    {700, 3, 20, 6},        {300, 8, 256, 7},    {90, 30, 30, 8},
      {65, 40, 600, 9}, {5000, 1, 3, 10, true},
  };
  for (const Choices& c : cases) {
    SCOPED_TRACE(testing::Message()
                 << c.n_tokens << " tokens, k " << c.max_k << ", " << c.n_experts << " experts");
    const DeviceChoices choices(c);
    const auto experts = static_cast<size_t>(c.n_experts);
    const OnDevice<int32_t> n_pairs(1), n_groups(1), group(experts), begin(experts + 1),
        token(c.expert.size()), expert(c.expert.size()), place(c.expert.size()),
        scratch(static_cast<size_t>(group_pairs_scratch(c.n_tokens, c.max_k, c.n_experts)));
    const PairLists out{n_pairs, n_groups, group, begin, token, expert, place};
    ASSERT_EQ(group_pairs(nullptr, choices.routing, c.n_experts, out, scratch), cudaSuccess);
    const Lists expected = host_lists(c);
    EXPECT_EQ(n_pairs.values()[0], static_cast<int32_t>(expected.token.size()));
    EXPECT_EQ(n_groups.values()[0], static_cast<int32_t>(expected.group.size()));
    expect_begins_with(group, expected.group, "group");
    expect_begins_with(begin, expected.begin, "begin");
    expect_begins_with(token, expected.token, "token");
    expect_begins_with(expert, expected.expert, "expert");
    EXPECT_EQ(place.values(), expected.place);
  }
}

// Pairs in another order of experts give the same sums.
TEST(CudaPairs, MovedWithTheirExperts) {
  const Choices c(50, 4, 9, 3);
  const Lists old = host_lists(c);
  const DeviceChoices choices(c);
  const auto n = static_cast<int32_t>(old.token.size());
  std::vector<int32_t> moved(9, 0);  // the last expert's pairs first
  std::vector<int32_t> token(old.token.size()), expert(old.token.size());
  std::vector<int32_t> place(old.place);
  for (size_t g = 0; g < old.group.size(); ++g) {
    moved[static_cast<size_t>(old.group[g])] = n - old.begin[g + 1] - old.begin[g];
  }
  for (int32_t& p : place) {
    if (p < 0) continue;
    const auto from = static_cast<size_t>(p);
    p += moved[static_cast<size_t>(old.expert[from])];
    token[static_cast<size_t>(p)] = old.token[from];
    expert[static_cast<size_t>(p)] = old.expert[from];
  }
  const OnDevice<int32_t> by(moved), tokens(old.token), experts(old.expert), places(old.place);
  PairLists lists;
  lists.token = tokens;
  lists.expert = experts;
  lists.place = places;
  ASSERT_EQ(move_pairs(nullptr, {choices.routing, by, lists}), cudaSuccess);
  EXPECT_EQ(tokens.values(), token);
  EXPECT_EQ(experts.values(), expert);
  EXPECT_EQ(places.values(), place);

  const std::vector<float> outputs = random_floats(old.token.size(), 5);
  std::vector<float> elsewhere(outputs.size());
  for (size_t slot = 0; slot < place.size(); ++slot) {
    if (place[slot] < 0) continue;
    elsewhere[static_cast<size_t>(place[slot])] = outputs[static_cast<size_t>(old.place[slot])];
  }
  const OnDevice<int32_t> old_places(old.place);
  const OnDevice<float> before(outputs), after(elsewhere), expected(50), sum(50);
  CombineOp op;
  op.routing = choices.routing;
  op.d = 1;
  op.place = old_places;
  op.outputs = before;
  op.sum = expected;
  ASSERT_EQ(combine(nullptr, op), cudaSuccess);
  op.place = places;
  op.outputs = after;
  op.sum = sum;
  ASSERT_EQ(combine(nullptr, op), cudaSuccess);
  EXPECT_SAME_BITS(sum.values(), expected.values());
}

TEST(CudaCombine, AscendingExpertsWithOneRoundingEach) {
  for (const int32_t d : {1, 30, 64, 260}) {
    for (const bool subtract : {false, true}) {
      for (const Choices& c : {Choices(6, 4, 9, 1), Choices(2, 70, 70, 2, true)}) {
        const Lists lists = host_lists(c);
        const auto width = static_cast<size_t>(d);
        const std::vector<float> outputs = random_floats(lists.token.size() * width, 5);
        const std::vector<float> x = random_floats(static_cast<size_t>(c.n_tokens) * width, 6);
        std::vector<float> expected(x.size(), 0.0f);
        for (size_t p = 0; p < lists.token.size(); ++p) {
          const auto t = static_cast<size_t>(lists.token[p]);
          const auto slot = static_cast<size_t>(
              std::find(lists.place.begin(), lists.place.end(), static_cast<int32_t>(p)) -
              lists.place.begin());
          for (size_t i = 0; i < width; ++i) {
            float v = outputs[p * width + i];
            if (subtract) v -= x[t * width + i];
            float& sum = expected[t * width + i];
            sum = __builtin_fmaf(c.weight[slot], v, sum);
          }
        }
        const DeviceChoices choices(c);
        const OnDevice<int32_t> place(lists.place);
        const OnDevice<float> device_outputs(outputs), device_x(x), sum(x.size());
        CombineOp op;
        op.routing = choices.routing;
        op.place = place;
        op.outputs = device_outputs;
        op.subtract = subtract ? device_x.get() : nullptr;
        op.d = d;
        op.sum = sum;
        ASSERT_EQ(combine(nullptr, op), cudaSuccess);
        EXPECT_SAME_BITS(sum.values(), expected);

        const std::vector<float> residual = random_floats(x.size(), 7);
        const OnDevice<float> y(residual);
        op.sum = nullptr;
        op.y = y;
        op.accumulate = subtract;
        op.scale = 0.7f;
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] =
              subtract ? __builtin_fmaf(0.7f, expected[i], residual[i]) : 0.7f * expected[i];
        }
        ASSERT_EQ(combine(nullptr, op), cudaSuccess);
        EXPECT_SAME_BITS(y.values(), expected);
      }
    }
  }
}

TEST(CudaCombine, AsManyExpertsAsItSays) {
  const int32_t most = most_combined(shared_of_a_block());
  EXPECT_GT(most, 8192);
  const Choices c(1, most, most, 3, true);
  const Lists lists = host_lists(c);
  const std::vector<float> outputs = random_floats(lists.token.size(), 5);
  std::vector<float> weight(outputs.size());
  for (size_t j = 0; j < weight.size(); ++j) {
    weight[static_cast<size_t>(lists.place[j])] = c.weight[j];
  }
  float expected = 0;
  for (size_t p = 0; p < weight.size(); ++p) {
    expected = __builtin_fmaf(weight[p], outputs[p], expected);
  }
  const DeviceChoices choices(c);
  const OnDevice<int32_t> place(lists.place);
  const OnDevice<float> device_outputs(outputs), sum(1);
  CombineOp op;
  op.routing = choices.routing;
  op.place = place;
  op.outputs = device_outputs;
  op.d = 1;
  op.sum = sum;
  ASSERT_EQ(combine(nullptr, op), cudaSuccess);
  EXPECT_SAME_BITS(sum.values(), std::vector<float>{expected});
}

TEST(CudaMerge, EveryCombination) {
  constexpr int32_t kRows = 3;
  for (const int32_t d : {5, 132, 600}) {
    const auto n = static_cast<size_t>(kRows * d);
    const std::vector<float> sum = random_floats(n, 1);
    const std::vector<float> shared = random_floats(n, 2);
    const std::vector<float> gate = random_floats(kRows, 3);
    const std::vector<float> y = random_floats(n, 4);
    for (int mask = 0; mask < 16; ++mask) {
      const bool has_sum = (mask & 1) != 0;
      const bool has_shared = (mask & 2) != 0;
      const bool has_gate = (mask & 4) != 0;
      const bool accumulate = (mask & 8) != 0;
      std::vector<float> expected(n);
      for (size_t i = 0; i < n; ++i) {
        float v = has_sum ? sum[i] : 0.0f;
        const float g = has_gate ? sigmoid_float(gate[i / static_cast<size_t>(d)]) : 1.0f;
        if (has_shared) v = __builtin_fmaf(g, shared[i], v);
        expected[i] = accumulate ? __builtin_fmaf(0.3f, v, y[i]) : 0.3f * v;
      }
      const OnDevice<float> device_sum(sum), device_shared(shared), device_gate(gate), out(y);
      MergeOp op;
      op.n_rows = kRows;
      op.d = d;
      op.sum = has_sum ? device_sum.get() : nullptr;
      op.shared = has_shared ? device_shared.get() : nullptr;
      op.gate = has_gate ? device_gate.get() : nullptr;
      op.accumulate = accumulate;
      op.scale = 0.3f;
      op.y = out;
      ASSERT_EQ(merge_rows(nullptr, op), cudaSuccess);
      EXPECT_SAME_BITS(out.values(), expected);
    }
  }
}

TEST(CudaMerge, MoreRowsThanAGridCounts) {
  const std::vector<float> sum = random_floats(static_cast<size_t>(kMostGridY) + 5, 1);
  std::vector<float> expected;
  for (const float v : sum) expected.push_back(0.3f * v);
  const OnDevice<float> device_sum(sum), out(sum.size());
  MergeOp op;
  op.n_rows = static_cast<int32_t>(sum.size());
  op.d = 1;
  op.sum = device_sum;
  op.scale = 0.3f;
  op.y = out;
  ASSERT_EQ(merge_rows(nullptr, op), cudaSuccess);
  EXPECT_SAME_BITS(out.values(), expected);
}

TEST(CudaCount, AddsToWhatIsThere) {
  for (const Choices& c :
       {Choices(600, 3, 10, 1), Choices(5, 2, 4096, 3), Choices(5, 2, 5000, 2)}) {
    const DeviceChoices choices(c);
    std::vector<uint64_t> tokens(static_cast<size_t>(c.n_experts), 1);
    std::vector<uint64_t> experts(static_cast<size_t>(c.n_experts) + 1, 2);
    std::vector<uint64_t> totals{1000, 5};
    const OnDevice<uint64_t> device_tokens(tokens), device_experts(experts), device_totals(totals);
    for (int32_t t = 0; t < c.n_tokens; ++t) {
      size_t served = 0;
      for (int32_t j = 0; j < c.max_k; ++j) {
        const auto at = static_cast<size_t>(t * c.max_k + j);
        if (c.kept[at] == 0) continue;
        ++served;
        ++tokens[static_cast<size_t>(c.expert[at])];
      }
      ++experts[served];
      ++totals[0];
      totals[1] += static_cast<size_t>(c.count[static_cast<size_t>(t)]) - served;
    }
    CountOp op;
    op.routing = choices.routing;
    op.n_experts = c.n_experts;
    op.totals = device_totals;
    op.tokens_per_expert = device_tokens;
    op.experts_per_token = device_experts;
    ASSERT_EQ(count_routing(nullptr, op), cudaSuccess);
    EXPECT_EQ(device_tokens.values(), tokens);
    EXPECT_EQ(device_experts.values(), experts);
    EXPECT_EQ(device_totals.values(), totals);
  }
}

}  // namespace
}  // namespace moe::cuda
