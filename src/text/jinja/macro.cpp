#include "text/jinja/macro.h"

#include <algorithm>
#include <optional>

#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  if (found == arguments.named.end()) return std::nullopt;
  Value value = std::move(found->second);
  arguments.named.erase(found);
  return value;
}

std::string name_of(const Function& function) {
  return function.name.empty() ? std::string("None") : quoted(function.name);
}

}  // namespace

void MacroObject::append_text(std::string& out, size_t, int) const {
  out += cat("<Macro ", function_.name.empty() ? "anonymous" : quoted(function_.name), ">");
}

Value MacroObject::attribute(std::string_view name) {
  if (name == "name") return function_.name.empty() ? Value(nullptr) : Value(function_.name);
  if (name == "catch_kwargs") return function_.takes_kwargs;
  if (name == "catch_varargs") return function_.takes_varargs;
  if (name == "caller") return function_.takes_caller;
  if (name != "arguments") return Value::missing();
  List names;
  for (const auto& parameter : function_.parameters) names.push_back(parameter->name);
  return Value::tuple(std::move(names));
}

void bind_parameters(const Function& function, Arguments& arguments, std::vector<Value>& slots) {
  const size_t count = function.parameters.size();
  const size_t given = std::min(count, arguments.positional.size());
  for (size_t i = 0; i < given; ++i) slots[function.parameters[i]->slot.index] = arguments.positional[i];
  for (size_t i = given; i < count; ++i) {
    if (auto value = take_named(arguments, function.parameters[i]->name.string())) {
      slots[function.parameters[i]->slot.index] = std::move(*value);
    }
  }
  if (function.takes_caller) {
    const auto caller = take_named(arguments, "caller");
    slots[function.caller_index] = caller && !caller->is_none() ? *caller : Value::undefined_hint("No caller defined");
  }
  if (function.takes_kwargs) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(name, std::move(value));
    slots[function.kwargs_index] = Value(std::move(rest));
  } else if (!arguments.named.empty()) {
    const std::string& name = arguments.named.front().first;
    if (name == "caller") fail("macro ", name_of(function), " was called by a call block but does not use 'caller'");
    fail("macro ", name_of(function), " takes no keyword argument ", quoted(name));
  }
  if (function.takes_varargs) {
    List rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    slots[function.varargs_index] = Value::tuple(std::move(rest));
  } else if (arguments.positional.size() > count) {
    fail("macro ", name_of(function), " takes not more than ", count, " argument(s)");
  }
}

}  // namespace gristmill::jinja
