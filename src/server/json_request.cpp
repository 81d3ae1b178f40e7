#include "server/json_request.h"

#include <boost/json/array.hpp>
#include <boost/json/parser.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <limits>

#include "server/api_error.h"

namespace gristmill::server {
namespace json = boost::json;
namespace {

constexpr size_t max_depth = 128;
constexpr size_t max_values = 2'000'000;

/// Commas and opening brackets outside strings bound the number of values.
void check_value_count(std::string_view body) {
  size_t values = 1;
  bool inside = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (inside) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        inside = false;
      }
    } else if (c == '"') {
      inside = true;
    } else if (c == ',' || c == '[' || c == '{') {
      ++values;
    }
  }
  if (values > max_values) throw schema_error(cat("the request holds more than ", max_values, " JSON values"));
}

ApiError wrong_type(const std::string& path, std::string_view wanted, const json::value& got) {
  return schema_error(cat(path, ": must be ", wanted, ", got ", kind_of(got)), path);
}

}  // namespace

std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "a whole number";
    case json::kind::double_:
      return "a number with a fraction";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "a list";
    case json::kind::object:
      return "an object";
  }
  return "something else";
}

json::object parse_json_object(std::string_view body) {
  check_value_count(body);
  json::parse_options options;
  options.max_depth = max_depth;
  json::parser parser({}, options);
  boost::system::error_code failure;
  const size_t used = parser.write_some(body.data(), body.size(), failure);
  if (failure) throw schema_error(cat("JSON decode error at byte ", used, ": ", failure.message()));
  for (size_t i = used; i < body.size(); ++i) {
    const char c = body[i];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      throw schema_error(cat("JSON decode error at byte ", i, ": extra data after the object"));
    }
  }
  json::value value = parser.release();
  if (!value.is_object()) throw schema_error(cat("the request body must be a JSON object, got ", kind_of(value)));
  return std::move(value.get_object());
}

FieldReader::FieldReader(const json::object& object, std::string path) : object_(object), path_(std::move(path)) {}

std::string FieldReader::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : cat(path_, ".", name);
}

const json::value* FieldReader::value(std::string_view name) {
  known_.emplace(name);
  const json::value* found = object_.if_contains({name.data(), name.size()});
  return found && !found->is_null() ? found : nullptr;
}

std::optional<std::string> FieldReader::string(std::string_view name) {
  const json::value* found = value(name);
  if (!found) return {};
  if (!found->is_string()) throw wrong_type(path(name), "a string", *found);
  return std::string(found->get_string().data(), found->get_string().size());
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const json::value* found = value(name);
  if (!found) return {};
  if (!found->is_bool()) throw wrong_type(path(name), "true or false", *found);
  return found->get_bool();
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t low, int64_t high) {
  const json::value* found = value(name);
  if (!found) return {};
  int64_t number = 0;
  bool fits = true;
  if (const int64_t* whole = found->if_int64()) {
    number = *whole;
  } else if (found->is_uint64()) {
    fits = false;  // above the largest int64
  } else if (const double* real = found->if_double(); real && std::nearbyint(*real) == *real) {
    fits = std::abs(*real) < 9e15;
    if (fits) number = static_cast<int64_t>(*real);
  } else {
    throw wrong_type(path(name), "a whole number", *found);
  }
  if (!fits || number < low || number > high) {
    if (high == std::numeric_limits<int64_t>::max() || high == std::numeric_limits<int32_t>::max()) {
      throw schema_error(fits && number < low ? cat(path(name), ": must be at least ", low)
                                              : cat(path(name), ": must be at most ", high),
                         path(name));
    }
    throw schema_error(cat(path(name), ": must be between ", low, " and ", high), path(name));
  }
  return number;
}

std::optional<double> FieldReader::number(std::string_view name) {
  const json::value* found = value(name);
  if (!found) return {};
  double number = 0;
  if (const double* real = found->if_double()) {
    number = *real;
  } else if (const int64_t* whole = found->if_int64()) {
    number = static_cast<double>(*whole);
  } else if (const uint64_t* large = found->if_uint64()) {
    number = static_cast<double>(*large);
  } else {
    throw wrong_type(path(name), "a number", *found);
  }
  if (!std::isfinite(number) || std::abs(number) > static_cast<double>(std::numeric_limits<float>::max())) {
    throw schema_error(cat(path(name), ": too large"), path(name));
  }
  return number;
}

const json::object* FieldReader::object(std::string_view name) {
  const json::value* found = value(name);
  if (!found) return nullptr;
  if (!found->is_object()) throw wrong_type(path(name), "an object", *found);
  return &found->get_object();
}

const json::array* FieldReader::array(std::string_view name) {
  const json::value* found = value(name);
  if (!found) return nullptr;
  if (!found->is_array()) throw wrong_type(path(name), "a list", *found);
  return &found->get_array();
}

std::vector<std::string> FieldReader::strings(std::string_view name, size_t most, bool or_one) {
  const json::value* found = value(name);
  if (!found) return {};
  if (or_one && found->is_string()) return {std::string(found->get_string().data(), found->get_string().size())};
  if (!found->is_array())
    throw wrong_type(path(name), or_one ? "a string or a list of strings" : "a list of strings", *found);
  const json::array& list = found->get_array();
  if (list.size() > most) throw schema_error(cat(path(name), ": at most ", most, " entries are allowed"), path(name));
  std::vector<std::string> out;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string()) throw wrong_type(cat(path(name), "[", i, "]"), "a string", list[i]);
    out.emplace_back(list[i].get_string().data(), list[i].get_string().size());
  }
  return out;
}

std::vector<int32_t> FieldReader::token_ids(std::string_view name, size_t most) {
  const json::array* list = array(name);
  if (!list) return {};
  if (list->size() > most) throw schema_error(cat(path(name), ": at most ", most, " entries are allowed"), path(name));
  std::vector<int32_t> out;
  out.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) out.push_back(token_id((*list)[i], cat(path(name), "[", i, "]")));
  return out;
}

int32_t token_id(const json::value& value, const std::string& path) {
  const int64_t* whole = value.if_int64();
  if (!whole && !value.is_uint64()) throw wrong_type(path, "a token id (a whole number)", value);
  if (!whole || *whole < 0 || *whole > std::numeric_limits<int32_t>::max()) {
    throw value_error(whole ? cat(path, ": token id ", *whole, " is out of the vocabulary")
                            : cat(path, ": token id is out of the vocabulary"),
                      path);
  }
  return static_cast<int32_t>(*whole);
}

std::vector<std::string> FieldReader::unknown() const {
  std::vector<std::string> out;
  for (const auto& entry : object_) {
    const std::string_view name(entry.key().data(), entry.key().size());
    if (!known_.contains(name)) out.emplace_back(name);
  }
  return out;
}

}  // namespace gristmill::server
