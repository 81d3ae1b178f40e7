#pragma once
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace gristmill {

/// A failure that a user can act on: its message names the file, field, tensor or flag and says what to do. The program
/// prints it as one line and exits with status 1; the server answers it with an error body. Programming mistakes are
/// asserts, not Errors.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A request asks for something that cannot be done; `field` is the JSON field (may be empty). Answered with 400.
class RequestError : public Error {
 public:
  RequestError(std::string field, const std::string& message) : Error(message), field_(std::move(field)) {}
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

/// Joins the text of all arguments, as operator<< prints them. For messages, not for hot paths.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace gristmill
