#pragma once
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace gristmill::jinja {

class Interpreter;

/// Python's format(value, spec): the mini-language behind the colon in "{:>10.2f}".
std::string format_value(const Value& value, std::string_view spec, Interpreter& interpreter);
/// Python's str.format().
Value format_text(const Value& format, const Arguments& arguments, Interpreter& interpreter);

}  // namespace gristmill::jinja
