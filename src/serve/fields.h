// SPDX-License-Identifier: MIT
#pragma once
// The fields that a request may have, and their values.

#include <string>
#include <vector>

#include "src/serve/json.h"

namespace moe_serve {

/// Names of fields that a request of one kind may have, besides those that no answer depends on.
using Fields = std::vector<const char*>;

/// Throws Refusal for a field that is none of `fields`, unless the answer would be the same without
/// it: fields by which operators tell clients apart (user, metadata ...) may have any value, and
/// those of what the service does not do, the value that switches it off.
void check_fields(const Json& request, const Fields& fields);

/// The value of a field in its range, or `otherwise` where it is not given. Throws Refusal.
bool flag_of(const Json& object, const std::string& key, bool otherwise,
             const std::string& where = "");
int64_t integer_of(const Json& object, const std::string& key, int64_t low, int64_t high,
                   int64_t otherwise);
double number_of(const Json& object, const std::string& key, double low, double high,
                 double otherwise);

}  // namespace moe_serve
