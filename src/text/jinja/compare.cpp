#include "text/jinja/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "text/jinja/error.h"
#include "text/jinja/object.h"

namespace gristmill::jinja {
namespace {

uint64_t multiply_fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

struct Seed {
  uint64_t first, second;
  Seed() {
    std::random_device device;
    const auto word = [&] { return (uint64_t{device()} << 32) | device(); };
    first = word();
    second = word() | 1;
  }
};

const Seed& seed() {
  static const Seed value;
  return value;
}

uint64_t mix(uint64_t value) {
  return multiply_fold(value ^ seed().first, seed().second ^ 0x9e3779b97f4a7c15u);
}

/// An exact comparison of an integer with a double, which a cast of either would round.
std::partial_ordering order_numbers(int64_t a, double b) {
  if (std::isnan(b)) return std::partial_ordering::unordered;
  if (b >= 0x1p63) return std::partial_ordering::less;
  if (b < -0x1p63) return std::partial_ordering::greater;
  const double whole = std::trunc(b);
  const auto by_whole = a <=> static_cast<int64_t>(whole);
  if (by_whole != 0) return by_whole;
  return 0.0 <=> (b - whole);
}

std::partial_ordering order_numbers(const Value& a, const Value& b) {
  if (a.is_integral()) return b.is_integral() ? a.integer() <=> b.integer() : order_numbers(a.integer(), b.real());
  if (!b.is_integral()) return a.real() <=> b.real();
  const auto reversed = order_numbers(b.integer(), a.real());
  return reversed == 0 ? reversed : 0 <=> reversed;
}

/// Equality of everything but lists, tuples and dicts.
bool equal_simple(const Value& a, const Value& b) {
  if (a.is_number()) return b.is_number() && order_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.string() == b.string();
  return a.is_undefined() || a.same_as(b);
}

}  // namespace

uint64_t hash_of(std::string_view text) {
  uint64_t state = seed().first ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = multiply_fold(state ^ word, seed().second ^ 0x9e3779b97f4a7c15u);
  }
  uint64_t tail = 0;
  if (left > 0) std::memcpy(&tail, at, left);
  return multiply_fold(state ^ tail, seed().second ^ 0xd6e8feb86659fd93u);
}

uint64_t hash_of(const Value& key) {
  switch (key.kind()) {
    case Kind::string:
      return hash_of(std::string_view(key.string()));
    case Kind::boolean:
    case Kind::integer:
      return mix(static_cast<uint64_t>(key.integer()));
    case Kind::real: {
      const double value = key.real();
      const bool whole = value >= -0x1p63 && value < 0x1p63 && std::trunc(value) == value;
      return mix(whole ? static_cast<uint64_t>(static_cast<int64_t>(value)) : std::bit_cast<uint64_t>(value));
    }
    case Kind::tuple: {
      uint64_t state = mix(key.list().size());
      for (const Value& item : key.list()) state = mix(state ^ hash_of(item));
      return state;
    }
    case Kind::object:
      return mix(std::bit_cast<uintptr_t>(&key.object()));
    case Kind::list:
    case Kind::dict:
      fail("unhashable type: '", key.type_name(), "'");
    default:
      return mix(static_cast<uint64_t>(key.kind()) << 32);
  }
}

bool equal_keys(const Value& a, const Value& b) {
  if (!a.is(Kind::tuple)) return equal_simple(a, b);
  return b.is(Kind::tuple) &&
         std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(), equal_keys);
}

bool equals(const Value& a, const Value& b, Budget& budget) {
  if (a.is_string() && b.is_string() && a.string().size() == b.string().size()) budget.scan(a.string().size());
  if (!a.is_sequence() && !a.is_dict()) return equal_simple(a, b);
  if (a.kind() != b.kind()) return false;
  if (a.same_as(b)) return true;
  if (a.is_sequence()) {
    if (a.list().size() != b.list().size()) return false;
    budget.steps(a.list().size());
    for (size_t i = 0; i < a.list().size(); ++i) {
      if (!equals(a.list()[i], b.list()[i], budget)) return false;
    }
    return true;
  }
  if (a.dict().size() != b.dict().size()) return false;
  budget.steps(a.dict().size());
  for (const auto& entry : a.dict()) {
    const Value* other = b.dict().find(entry.key);
    if (!other || !equals(entry.value, *other, budget)) return false;
  }
  return true;
}

std::partial_ordering order(const Value& a, const Value& b, std::string_view sign, Budget& budget) {
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) fail(side->undefined_message());
  }
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    budget.scan(std::min(a.string().size(), b.string().size()));
    return a.string().compare(b.string()) <=> 0;  // UTF-8 sorts as its code points do
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const size_t common = std::min(a.list().size(), b.list().size());
    budget.steps(common);
    for (size_t i = 0; i < common; ++i) {
      if (!equals(a.list()[i], b.list()[i], budget)) return order(a.list()[i], b.list()[i], sign, budget);
    }
    return a.list().size() <=> b.list().size();
  }
  fail("'", sign, "' not supported between instances of '", a.type_name(), "' and '", b.type_name(), "'");
}

}  // namespace gristmill::jinja
