#include "text/jinja/method.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/object.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(const Method& method, Value self) : method_(method), self_(std::move(self)) { hold(self_); }
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  void append_text(std::string& out, size_t, int) const override {
    out += cat("<built-in method ", method_.name, " of ", self_.type_name(), " object>");
  }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return call_method(method_, self_, arguments, interpreter);
  }

 private:
  const Method& method_;
  Value self_;
};

const Method* find_in(std::span<const Method> methods, std::string_view name) {
  const auto found = std::lower_bound(methods.begin(), methods.end(), name,
                                      [](const Method& method, std::string_view n) { return method.name < n; });
  return found != methods.end() && found->name == name ? &*found : nullptr;
}

}  // namespace

Methods find_methods(std::string_view name) {
  return {find_in(string_methods(), name), find_in(list_methods(), name), find_in(tuple_methods(), name),
          find_in(dict_methods(), name)};
}

Value bind_method(const Method& method, const Value& self) {
  return make_object<BoundMethod>(method, self);
}

Value call_method(const Method& method, const Value& self, Arguments& arguments, Interpreter& interpreter) {
  if (!method.function) fail("the method ", self.type_name(), ".", method.name, "() is not supported in templates");
  return method.function(interpreter, self, arguments);
}

// ---- Arguments
// -------------------------------------------------------------------------------------------------------

void bind_into(Arguments& arguments, std::string_view function, std::span<const std::string_view> names,
               size_t required, std::span<Value> out) {
  if (arguments.positional.size() > names.size()) {
    fail(function, "() takes at most ", names.size(), " arguments (", arguments.positional.size(), " given)");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) out[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail(function, "() got an unexpected keyword argument ", quoted(name));
    Value& target = out[static_cast<size_t>(found - names.begin())];
    if (!target.is_missing()) fail(function, "() got multiple values for argument ", quoted(name));
    target = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i].is_missing()) fail(function, "() is missing the argument '", names[i], "'");
  }
}

void expect_none(Arguments& arguments, std::string_view function) {
  if (!arguments.positional.empty() || !arguments.named.empty()) fail(function, "() takes no arguments");
}

int64_t integer_or(const Value& argument, int64_t otherwise, std::string_view what) {
  if (argument.is_missing() || argument.is_none()) return otherwise;
  if (argument.is_undefined()) fail(argument.undefined_message());
  if (!argument.is_integral()) fail(what, " must be an integer, not ", argument.type_name());
  return argument.integer();
}

bool truth_or(const Value& argument, bool otherwise) {
  return argument.is_missing() ? otherwise : truth(argument);
}

}  // namespace gristmill::jinja
