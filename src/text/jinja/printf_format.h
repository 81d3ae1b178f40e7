#pragma once
#include "text/jinja/value.h"

namespace gristmill::jinja {

class Interpreter;

/// Python's `format % arguments` for strings: arguments are a tuple, a dict (for %(name)s) or one value.
Value printf_format(const Value& format, const Value& arguments, Interpreter& interpreter);

}  // namespace gristmill::jinja
