#pragma once
#include <string>
#include <utility>

#include "base/error.h"

namespace gristmill::jinja {

/// A place in a template: 1-based line and column, the column counted in code points. Line 0 means "not known yet".
struct Position {
  int line = 0;
  int column = 0;
};

/// What went wrong with a template.
enum class Fault {
  syntax,   ///< the source is not a template (or uses a tag, filter or test that does not exist)
  runtime,  ///< an operation that Python would refuse too (TypeError, UndefinedError, SecurityError, ...)
  raised,   ///< the template itself called raise_exception()
  limit     ///< one of the Limits was reached
};

/// Every failure of a template. what() is "line 3, column 7: message"; message() is the message alone.
class TemplateError : public Error {
 public:
  TemplateError(Fault fault, std::string message, Position at = {})
      : Error(at.line > 0 ? cat("line ", at.line, ", column ", at.column, ": ", message) : message),
        fault_(fault),
        message_(std::move(message)),
        at_(at) {}

  Fault fault() const { return fault_; }
  const std::string& message() const { return message_; }
  int line() const { return at_.line; }
  int column() const { return at_.column; }

 private:
  Fault fault_;
  std::string message_;
  Position at_;
};

/// Throws a run-time fault; the interpreter adds the position of the node that was being evaluated.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw TemplateError(Fault::runtime, cat(parts...));
}

}  // namespace gristmill::jinja
