// SPDX-License-Identifier: MIT
#pragma once
// The driver's types, for code that includes CUDA's header of this name.

#include "cuda_runtime.h"
