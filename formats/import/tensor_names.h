// SPDX-License-Identifier: MIT
#pragma once
// Names that tensors have when a model was saved inside a wrapper.

#include <string>

namespace moe {

/// The name without what torch.compile, DataParallel, FSDP, activation checkpointing, PEFT and
/// modules that hold a whole model put before or into it: "module._orig_mod.model.norm.weight" and
/// "model.model.norm.weight" are "model.norm.weight". Other names are unchanged.
std::string unwrapped_name(const std::string& name);

/// True for a tensor of an adapter (LoRA and others of PEFT), or of a matrix that has one.
bool is_adapter_name(const std::string& name);

}  // namespace moe
