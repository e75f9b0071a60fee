// Encoder-decoders and beam search.

#include <algorithm>

#include "src/run/beam.h"
#include "tests/golden/golden.h"

namespace moe::golden {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

BeamOptions beam_options(const Case& c) {
  BeamOptions o;
  o.beam = c.integer("beam", 5);
  o.n_best = c.integer("nbest", 1);
  o.min_tokens = c.integer("min_len", 1);
  o.max_tokens = c.integer("max_len", 0);
  o.length_penalty = static_cast<float>(c.real("alpha", 1));
  o.stop = c.text("stop", "count") == "bound" ? BeamStop::kBound : BeamStop::kCount;
  return o;
}

/// What is said after a text: the row of its last token, or of its last two.
class Table {
 public:
  explicit Table(const Tensor& t)
      : n_(static_cast<size_t>(t.width())), two_(t.shape.size() == 3), values_(t.floats()) {}
  std::span<const float> after(const std::vector<int32_t>& text) const {
    const auto last = static_cast<size_t>(text.back());
    const auto before = static_cast<size_t>(text[text.size() < 2 ? 0 : text.size() - 2]);
    return {values_.data() + (two_ ? before * n_ + last : last) * n_, n_};
  }

 private:
  size_t n_;
  bool two_;
  std::vector<float> values_;
};

Status search(BeamSearch& beam, const Table& table, int32_t start) {
  Texts texts = {{start}};
  while (!beam.done()) {
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      MOE_TRY(beam.offer(j, table.after(texts[static_cast<size_t>(j)])));
    }
    MOE_TRY(beam.end_step());
    Texts next;
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      next.push_back(texts[static_cast<size_t>(beam.parent(j))]);
      next.back().push_back(beam.token(j));
    }
    texts = std::move(next);
  }
  return {};
}

void put_results(const BeamSearch& beam, Outcome& outcome) {
  Texts tokens;
  std::vector<float> scores;
  for (int32_t i = 0; i < beam.n_results(); ++i) {
    tokens.emplace_back(static_cast<size_t>(beam.n_tokens(i)));
    beam.read(i, tokens.back().data());
    scores.push_back(beam.score(i));
  }
  outcome.out["tokens"] = tokens;
  outcome.out["scores"] = to_json(scores, {static_cast<int64_t>(scores.size())});
}

Status run_search(const Case& c, BeamSearch& beam) {
  const int32_t eos = c.integer("eos", 0);
  MOE_TRY(beam.begin(beam_options(c), {{&eos, 1}, {}, c.integer("pad", -1)}));
  return search(beam, Table(c.in_tensor("table")), c.integer("start", 0));
}

void run_beam(const Case& c, Devices&, Outcome& outcome) {
  BeamSearch beam(system_allocator());
  outcome.status = run_search(c, beam);
  if (outcome.status.ok()) put_results(beam, outcome);
}

}  // namespace

void add_translation(Runners& runners) { runners["beam_search"] = run_beam; }

}  // namespace moe::golden
