#pragma once
#include <string>
#include <string_view>

#include "text/jinja/value.h"

/// Values as Python prints them.
namespace gristmill::jinja {

/// str(value): what {{ value }} prints.
std::string to_text(const Value& value);
/// repr(value): what a value inside a list or dict prints as.
std::string repr(const Value& value);
/// repr of a string: in single quotes, unless it holds some and no double ones.
std::string quoted(std::string_view text);
/// repr of a float: the shortest digits that read back the same.
std::string float_text(double value);

/// Appends str or repr, and stops with TemplateError (limit) when `out` grows by more than `room` bytes. `level` counts
/// the values being printed around this one.
void append_text(std::string& out, const Value& value, size_t room);
void append_repr(std::string& out, const Value& value, size_t room, int level = 0);

}  // namespace gristmill::jinja
