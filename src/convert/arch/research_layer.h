#pragma once
// One layer of the research layout's config.json.

#include <deque>
#include <vector>

#include "formats/import/json.h"
#include "src/model/names.h"

namespace moe {

/// The value named by the string, from row `first` on; the error lists them.
template <class E, size_t n>
E value_of(const JsonNode& node, const Named<E> (&table)[n], size_t first = 0) {
  std::string known;
  for (size_t i = first; i < n; ++i) {
    if (node.value().is_string() && node.string() == table[i].name) return table[i].value;
    known += (i == first ? "one of " : ", ") + std::string(table[i].name);
  }
  node.fail_expected(known);
}

struct ResearchLayer {
  LayerConfig config;
  int32_t cosine_width = 0;  // d_e if the configuration gives it
};

/// `node` is the layer after merging defaults and overrides; `model` has everything except layers.
/// `factors` owns the lists that RopeConfig points to.
ResearchLayer read_research_layer(const JsonNode& node, const ModelConfig& model,
                                  std::deque<std::vector<float>>* factors);

}  // namespace moe
