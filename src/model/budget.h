// SPDX-License-Identifier: MIT
#pragma once
// The memory cap of one model: who has reserved how much of it. See src/model/README.md.

#include <initializer_list>
#include <span>
#include <utility>

#include "src/base/mutex.h"
#include "src/base/status.h"

namespace moe {

class Budget;

/// One line of a memory account.
struct MemoryLine {
  const char* what;
  uint64_t bytes;
};

/// Bytes that count against a budget until they are released, at the latest with this object.
class Reservation {
 public:
  explicit Reservation(Budget& budget) : budget_(&budget) {}
  Reservation(Reservation&& other) noexcept
      : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { release(); }
  uint64_t bytes() const;
  void release();
  /// Takes the bytes of another one of the same budget; its own must be 0.
  void take(Reservation& other) { bytes_ = std::exchange(other.bytes_, 0); }

 private:
  friend class Budget;
  Budget* budget_;
  uint64_t bytes_ = 0;
};

/// Who asks for memory, and what helps beside a larger cap: for the text of a refusal.
struct Claimant {
  const char* who = "a session";
  const char* way_out = "free a session";
};

/// Memory that takes what all reservations leave: the expert cache. The budget's lock is held
/// during every call.
class LastTenant {
 public:
  /// The least that it takes.
  virtual uint64_t least_bytes() const = 0;
  /// Takes at most `bytes`, and at least least_bytes(). To shrink it waits until no operation uses
  /// the memory that it gives back. MOE_ERR_MEMORY if it has none afterwards.
  virtual Status fit(uint64_t bytes) = 0;
  virtual uint64_t bytes() const = 0;

 protected:
  ~LastTenant() = default;
};

/// Any thread. No thread that a reservation may have to wait for (one that uses experts) may call
/// it.
class Budget {
 public:
  struct Usage {  // all zero without a cap
    uint64_t cap = 0;
    uint64_t counted = 0;  // all reservations and the last tenant
    uint64_t peak = 0;     // the maximum of `counted`
  };
  /// A reservation, or null, and the bytes that it shall have.
  struct Change {
    Reservation* of;
    uint64_t bytes;
  };

  /// `cap` in bytes; 0: none, and every reservation is granted.
  explicit Budget(uint64_t cap);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  uint64_t cap() const { return cap_; }
  bool unlimited() const { return cap_ == 0; }
  /// Counts what the model itself has. It is not refused: whoever opens a session is told.
  void set_own_bytes(uint64_t bytes);
  /// Changes reservations together, before their owners allocate or after they have freed. The last
  /// tenant shrinks or grows by the difference. MOE_ERR_BUDGET, with nothing changed, if all
  /// reservations and the least of the last tenant would exceed the cap.
  Status reserve(std::initializer_list<Change> changes, const Claimant& claimant = {});
  /// MOE_ERR_BUDGET with the sum of `parts`, if their `total` exceeds the cap.
  Status check(uint64_t total, std::span<const MemoryLine> parts) const;
  /// MOE_ERR_BUDGET: `bytes` are asked for where there are `room`.
  Status refused(const Claimant& claimant, uint64_t bytes, uint64_t room) const;
  /// The bytes that can still be reserved: the cap without all reservations and the least of the
  /// last tenant. UINT64_MAX without a cap.
  uint64_t free_bytes() const;
  /// The bytes that reservations leave to the last tenant. UINT64_MAX without a cap.
  uint64_t last_bytes() const;
  /// The bytes that `used` ones would leave. UINT64_MAX without a cap.
  uint64_t bytes_beside(uint64_t used) const;
  /// From now on `tenant` takes what is left.
  Status start(LastTenant& tenant);
  /// Forgets it; what it took at least still counts.
  void stop();
  /// `least` counts for a tenant that has not started.
  void expect(uint64_t least);
  Usage usage() const;
  /// True in a forked child, where the lock may be held forever by a thread that does not exist:
  /// reservations then end without telling.
  bool forked() const;

 private:
  friend class Reservation;
  uint64_t reserved() const { return own_ + reserved_; }
  uint64_t free_locked() const;
  void count();
  Status fit();
  void release(uint64_t bytes);

  const uint64_t cap_;
  const int process_;
  mutable Mutex mutex_;  // the one lock of memory sizes; every lock of a tenant comes after it
  uint64_t own_ = 0;
  uint64_t reserved_ = 0;
  uint64_t peak_ = 0;
  uint64_t least_ = 0;
  LastTenant* last_ = nullptr;
};

}  // namespace moe
