#pragma once
#include <compare>
#include <cstdint>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace gristmill::jinja {

/// Hash of a dict key; equal keys have equal hashes. Seeded anew in every process, so that requests cannot be built to
/// collide. Throws for lists and dicts.
uint64_t hash_of(const Value& key);
uint64_t hash_of(std::string_view text);
/// Equality of two hashable values.
bool equal_keys(const Value& a, const Value& b);

/// Python's ==.
bool equals(const Value& a, const Value& b, Budget& budget);
/// Python's <, <=, >, >= (`sign` is how the operator is written, for the message). Unordered for NaN. Throws where
/// Python does.
std::partial_ordering order(const Value& a, const Value& b, std::string_view sign, Budget& budget);

}  // namespace gristmill::jinja
