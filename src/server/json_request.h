#pragma once
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::server {

/// Parses a request body. Refuses (ApiError 400, naming the byte) what is no JSON object, is no UTF-8, is nested deeper
/// than 128 levels or has more than two million values: the tree takes 24 bytes a value and more.
boost::json::object parse_json_object(std::string_view body);

/// Reads the fields of one JSON object. A field that is absent or null gives nothing; one of the wrong type or out of
/// range is an ApiError that names its full path and the reason. Remembers which fields were asked for.
class FieldReader {
 public:
  /// `path` names the object itself ("messages[2]"); empty at the top. The object must outlive the reader.
  explicit FieldReader(const boost::json::object& object, std::string path = {});

  const boost::json::value* value(std::string_view name);
  std::optional<std::string> string(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  /// A whole number in [low, high]; 5.0 counts as 5.
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> number(std::string_view name);
  const boost::json::object* object(std::string_view name);
  const boost::json::array* array(std::string_view name);
  /// One string or a list of at most `most` strings.
  std::vector<std::string> strings(std::string_view name, size_t most, bool or_one = true);
  /// A list of at most `most` token ids that fit 32 bits (their range is checked later).
  std::vector<int32_t> token_ids(std::string_view name, size_t most);
  /// Marks a field as known without reading it.
  void known(std::string_view name) { known_.emplace(name); }

  /// "messages[2].content" for field "content".
  std::string path(std::string_view name) const;
  /// The names nobody asked for, in the object's order.
  std::vector<std::string> unknown() const;

 private:
  const boost::json::object& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

/// "a string", "a list", ...: what `value` is, for messages.
std::string_view kind_of(const boost::json::value& value);
/// The 32-bit token id that `value` holds; ApiError naming `path` otherwise.
int32_t token_id(const boost::json::value& value, const std::string& path);

}  // namespace gristmill::server
