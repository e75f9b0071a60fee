// SPDX-License-Identifier: MIT
// Formats an error's text and throws it; turns whatever was thrown back into a Status.
#include "formats/import/failure.h"

#include <cstdarg>
#include <new>
#include <stdexcept>

namespace moe {

void fail(moe_status code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const Status status = Status::verror(code, format, args);
  va_end(args);
  throw Failure(status);
}

Status current_failure() {
  try {
    throw;
  } catch (const Failure& failure) {
    return failure.status();
  } catch (const std::bad_alloc&) {
    return Status::error(MOE_ERR_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    return Status::error(MOE_ERR_MEMORY, "out of memory: a size beyond what a container can hold");
  } catch (const std::exception& e) {
    return Status::error(MOE_ERR_INTERNAL, "%s", e.what());
  } catch (...) {
    return Status::error(MOE_ERR_INTERNAL, "unknown exception");
  }
}

}  // namespace moe
