#pragma once
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

namespace gristmill::jinja {

/// `value.method` without the call.
Value bind_method(const Method& method, const Value& self);
Value call_method(const Method& method, const Value& self, Arguments& arguments, Interpreter& interpreter);

/// The methods of one type, sorted by name; for find_methods().
std::span<const Method> string_methods();
std::span<const Method> list_methods();
std::span<const Method> tuple_methods();
std::span<const Method> dict_methods();

}  // namespace gristmill::jinja
