#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace gristmill::server {

/// Appends `text` as a JSON string with its quotes. The result is always valid UTF-8: what is no UTF-8 in `text`
/// becomes U+FFFD, one per maximal subpart (Unicode 15, section 3.9).
void append_json_string(std::string& out, std::string_view text);
/// Shortest form that reads back as the same float. JSON has no infinity: minus infinity and below become -9999, as
/// clients of this API expect of log-probabilities; NaN becomes null.
void append_json_number(std::string& out, float value);
void append_json_number(std::string& out, double value);

/// Writes JSON into a string that is reused, with commas where they belong. Append-only: the hot path of a stream
/// builds no tree and allocates nothing once the string has grown.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  /// A value that is JSON already.
  JsonWriter& raw(std::string_view json);

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string& out_;
  bool comma_ = false;  // a value has been written at this level
};

/// The number of code points in `text`, counted as its bytes that do not continue a character.
size_t count_characters(std::string_view text);

}  // namespace gristmill::server
