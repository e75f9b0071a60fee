// SPDX-License-Identifier: MIT
#pragma once
// How the lanes of an Isa share the work of a mixer's units. On a CPU one group of 16 lanes does
// all of it. A GPU runs a unit by several groups of 16 threads, each thread one lane: an Isa with
// kGroups of them (kernels/cuda/group_isa.h) has group(), the caller's own, wait(), and shared().
//
// Every thread of a unit runs the same text. A loop over rows or columns that begins at a group and
// goes on by their number is shared out; any other loop is run by all of them. A thread reads what
// others wrote only after wait_for_groups(), which all of them have to reach. Plain C headers only.

#include "kernels/cpu/lanes.h"

namespace moe {

template <class Isa>
concept InGroups = requires {
  Isa::kGroups;
};

/// The caller's group: its rows of a loop are this one and every group_count<Isa>()-th after it.
template <class Isa>
MOE_INLINE int group_of() {
  if constexpr (InGroups<Isa>) {
    return Isa::group();
  } else {
    return 0;
  }
}

template <class Isa>
MOE_INLINE constexpr int group_count() {
  if constexpr (InGroups<Isa>) {
    return Isa::kGroups;
  } else {
    return 1;
  }
}

/// The same of columns, 16 at a time. A column is always the same thread's.
template <class Isa>
MOE_INLINE int first_column() {
  return 16 * group_of<Isa>();
}
template <class Isa>
MOE_INLINE constexpr int column_step() {
  return 16 * group_count<Isa>();
}

/// Everything that the unit's threads have written is there for all of them.
template <class Isa>
MOE_INLINE void wait_for_groups() {
  if constexpr (InGroups<Isa>) Isa::wait();
}

/// A T of the unit, whose groups share it. Without a value at first.
template <class Isa, class T>
class OfUnit {
 public:
  MOE_HD T& get() { return own_; }

 private:
  T own_;
};
template <class Isa, class T>
requires InGroups<Isa>
class OfUnit<Isa, T> {
 public:
  MOE_HD T& get() { return Isa::template shared<T>(); }
};

}  // namespace moe
