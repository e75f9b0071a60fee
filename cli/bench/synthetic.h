// SPDX-License-Identifier: MIT
#pragma once
// Synthetic models of moe bench: in memory, or as a file that is read under a memory cap.

#include "cli/bench/bench.h"

namespace moe_cli {

/// A model, and the memory of a synthetic one, which must outlive it.
struct Loaded {
  std::shared_ptr<void> image;
  Model model;
};

/// --synthetic and related options; `o` must outlive `c`.
void add_synthetic_options(CLI::App& c, BenchOptions& o);
/// Writes the synthetic model to o.save.
void save_synthetic(const BenchOptions& o);
/// The synthetic model: in memory; with --memory, --io, --map or --save, or if memory is too small,
/// from a file, which is temporary without --save.
Loaded load_synthetic(const BenchOptions& o, moe_env* env);

}  // namespace moe_cli
