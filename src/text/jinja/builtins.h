#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

#include "text/jinja/value.h"

/// The functions that jinja2 and Python's own types bring along.
namespace gristmill::jinja {

class Interpreter;

using FilterFunction = Value (*)(Interpreter&, const Value& input, Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value& input, Arguments&);
using MethodFunction = Value (*)(Interpreter&, const Value& self, Arguments&);

/// A method of a Python type. One without a function exists but must not be called: it would change the value, or is
/// not supported.
struct Method {
  std::string_view name;
  MethodFunction function = nullptr;
  bool changes = false;
};

/// The methods of one name, per type; null where the type has none.
struct Methods {
  const Method* of_string = nullptr;
  const Method* of_list = nullptr;
  const Method* of_tuple = nullptr;
  const Method* of_dict = nullptr;
  const Method* of(const Value& value) const {
    switch (value.kind()) {
      case Kind::string:
        return of_string;
      case Kind::list:
        return of_list;
      case Kind::tuple:
        return of_tuple;
      case Kind::dict:
        return of_dict;
      default:
        return nullptr;
    }
  }
};

FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
Methods find_methods(std::string_view name);
/// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
const Dict& globals();

/// Puts the arguments of a call into the order of `names`, as Python does; those not given are missing. The first
/// `required` must be given. Throws TypeError's words, with `function` as the name.
template <size_t N>
std::array<Value, N> bind(Arguments& arguments, std::string_view function, const std::string_view (&names)[N],
                          size_t required = 0);
void bind_into(Arguments& arguments, std::string_view function, std::span<const std::string_view> names,
               size_t required, std::span<Value> out);
/// For functions that take no (further) arguments.
void expect_none(Arguments& arguments, std::string_view function);

template <size_t N>
std::array<Value, N> bind(Arguments& arguments, std::string_view function, const std::string_view (&names)[N],
                          size_t required) {
  std::array<Value, N> values;
  values.fill(Value::missing());
  bind_into(arguments, function, names, required, values);
  return values;
}

/// An argument that must be an integer, or `otherwise` if missing or None.
int64_t integer_or(const Value& argument, int64_t otherwise, std::string_view what);
bool truth_or(const Value& argument, bool otherwise);

}  // namespace gristmill::jinja
