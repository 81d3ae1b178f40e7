#pragma once
#include "text/jinja/interpreter.h"
#include "text/jinja/object.h"

namespace gristmill::jinja {

/// A macro, or the `caller` of a call block, with the variables around its definition.
class MacroObject final : public Object {
 public:
  MacroObject(const Function& function, Ref<Frame> home) : function_(function), home_(std::move(home)) {}
  std::string_view type_name() const override { return "Macro"; }
  void append_text(std::string& out, size_t room, int level) const override;
  Value attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override {
    return interpreter.run_function(function_, home_, arguments);
  }

 private:
  const Function& function_;
  Ref<Frame> home_;
};

/// Puts the arguments of a call into the slots of a macro's parameters; those not given stay missing. Throws as jinja2
/// does for arguments that the macro does not take.
void bind_parameters(const Function& function, Arguments& arguments, std::vector<Value>& slots);

}  // namespace gristmill::jinja
