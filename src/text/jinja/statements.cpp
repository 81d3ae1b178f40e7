#include <algorithm>

#include "text/jinja/interpreter_scopes.h"
#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {

Interpreter::Interpreter(const Tree& tree, const Dict& context, const RenderOptions& options)
    : tree_(tree), context_(context), options_(options), budget_(options.limits) {}

Interpreter::~Interpreter() {
  // Values that hold each other in a circle are freed by emptying what can close one.
  for (const auto& object : kept_) object->clear();
  for (const auto& frame : captured_) {
    std::vector<Value> slots = std::move(frame->slots);
    frame->slots.clear();
  }
}

std::string Interpreter::render() {
  frame_ = Ref<Frame>(new Frame(tree_.slots, {}));
  enter(tree_.loads);
  run(tree_.body);
  return std::move(result_);
}

Ref<Frame> Interpreter::keep_frame(const Ref<Frame>& frame) {
  if (!std::exchange(frame->captured, true)) captured_.push_back(frame);
  return frame;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& statement : body) {
    if (const Flow flow = run(*statement); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& node) {
  try {
    const Level level(*this);
    budget_.steps(1);
    switch (node.kind) {
      case StatementKind::text:
        write(static_cast<const Text&>(node).text);
        break;
      case StatementKind::print:
        print(evaluate(*static_cast<const Print&>(node).value));
        break;
      case StatementKind::set:
        set(static_cast<const Set&>(node));
        break;
      case StatementKind::set_block:
        return run_set_block(static_cast<const SetBlock&>(node));
      case StatementKind::loop:
        return run_loop(static_cast<const Loop&>(node));
      case StatementKind::branch:
        return run_branch(static_cast<const Branch&>(node));
      case StatementKind::macro:
        run_macro(static_cast<const Macro&>(node));
        break;
      case StatementKind::call_block:
        run_call_block(static_cast<const CallBlock&>(node));
        break;
      case StatementKind::generation: {
        Arguments none;
        print(run_function(static_cast<const Generation&>(node).function, frame_, none));
        break;
      }
      case StatementKind::filter_block:
        return run_filter_block(static_cast<const FilterBlock&>(node));
      case StatementKind::with:
        return run_with(static_cast<const With&>(node));
      case StatementKind::leave_loop:
        return Flow::leave_loop;
      case StatementKind::next_round:
        return Flow::next_round;
    }
    return Flow::next;
  } catch (const TemplateError& error) {
    if (error.line() > 0) throw;
    throw TemplateError(error.fault(), error.message(), node.at);
  }
}

void Interpreter::write(std::string_view text) {
  budget_.text(text.size());
  if (out_ == &result_ && text.size() > budget_.limits().output_bytes - result_.size()) {
    throw TemplateError(Fault::limit,
                        cat("the result is longer than the limit of ", budget_.limits().output_bytes, " bytes"));
  }
  out_->append(text);
}

void Interpreter::print(const Value& value) {
  if (value.is_string()) return write(value.string());
  std::string text;
  append_text(text, value, budget_.text_room());
  write(text);
}

void Interpreter::enter(const Loads& loads) {
  for (const Load& load : loads) {
    Value& slot = frame_->slots[load.index];
    switch (load.action) {
      case Load::Action::resolve:
        slot = resolve(load.name);
        break;
      case Load::Action::copy:
        slot = Value(variable(load.from));
        break;
      case Load::Action::clear:
        slot = Value::missing();
        break;
    }
  }
}

Value Interpreter::resolve(const Value& name) const {
  if (const Value* found = context_.find(name)) return *found;
  if (const Value* found = globals().find(name)) return *found;
  return Value::missing();
}

Value& Interpreter::variable(Slot slot) {
  Frame* frame = frame_.get();
  for (uint16_t hop = slot.hops; hop > 0; --hop) frame = frame->outer.get();
  return frame->slots[slot.index];
}

// ---- Assignment
// ------------------------------------------------------------------------------------------------------

void Interpreter::set(const Set& node) {
  check_namespaces(*node.target);
  assign(*node.target, evaluate(*node.value));
}

void Interpreter::check_namespaces(const Expression& target) {
  if (target.kind == ExpressionKind::sequence) {
    for (const auto& item : static_cast<const Sequence&>(target).items) check_namespaces(*item);
  } else if (target.kind == ExpressionKind::namespace_target) {
    const auto& reference = static_cast<const NamespaceTarget&>(target);
    if (!variable(reference.slot).as<Namespace>()) fail("cannot assign attribute on non-namespace object");
  }
}

void Interpreter::assign(const Expression& target, Value value) {
  switch (target.kind) {
    case ExpressionKind::name:
      variable(static_cast<const Name&>(target).slot) = std::move(value);
      return;
    case ExpressionKind::namespace_target: {
      const auto& reference = static_cast<const NamespaceTarget&>(target);
      auto* space = variable(reference.slot).as<Namespace>();
      if (!space) fail("cannot assign attribute on non-namespace object");
      return space->set(reference.attribute, std::move(value));
    }
    default:
      return unpack(static_cast<const Sequence&>(target), value);
  }
}

void Interpreter::unpack(const Sequence& target, const Value& value) {
  if (!is_iterable(value)) fail("cannot unpack non-iterable ", value.type_name(), " object");
  const size_t wanted = target.items.size();
  List items;
  Iterator iterator(value);
  Value item;
  while (items.size() <= wanted && iterator.next(item)) items.push_back(std::move(item));
  if (items.size() > wanted) fail("too many values to unpack (expected ", wanted, ")");
  if (items.size() < wanted) fail("not enough values to unpack (expected ", wanted, ", got ", items.size(), ")");
  for (size_t i = 0; i < wanted; ++i) assign(*target.items[i], std::move(items[i]));
}

// ---- Blocks
// ----------------------------------------------------------------------------------------------------------

Interpreter::Flow Interpreter::run_branch(const Branch& node) {
  for (const auto& [condition, body] : node.cases) {
    if (jinja::truth(evaluate(*condition))) return run(body);
  }
  return run(node.otherwise);
}

Interpreter::Flow Interpreter::run_set_block(const SetBlock& node) {
  enter(node.loads);
  Capture capture(*this);
  if (const Flow flow = run(node.body); flow != Flow::next) return flow;
  Value text = capture.take();
  if (node.filter) {
    const Value* outer = std::exchange(block_text_, &text);
    text = evaluate(*node.filter);
    block_text_ = outer;
  }
  check_namespaces(*node.target);
  // jinja2 gives the result of the filters on as it is, where they return no text.
  assign(*node.target, std::move(text));
  return Flow::next;
}

Interpreter::Flow Interpreter::run_filter_block(const FilterBlock& node) {
  enter(node.loads);
  Value text;
  {
    Capture capture(*this);
    if (const Flow flow = run(node.body); flow != Flow::next) return flow;
    text = capture.take();
  }
  const Value* outer = std::exchange(block_text_, &text);
  const Value filtered = evaluate(*node.filter);
  block_text_ = outer;
  print(filtered);
  return Flow::next;
}

Interpreter::Flow Interpreter::run_with(const With& node) {
  enter(node.loads);
  for (const auto& [target, value] : node.variables) assign(*target, evaluate(*value));
  return run(node.body);
}

// ---- Loops
// -----------------------------------------------------------------------------------------------------------

Interpreter::Flow Interpreter::run_loop(const Loop& node) {
  const Value source = evaluate(*node.source);
  if (!node.recursive) return iterate(node, frame_, source, 0);
  print(run_recursive_loop(node, frame_, source, 0));
  return Flow::next;
}

Value Interpreter::run_recursive_loop(const Loop& node, const Ref<Frame>& home, const Value& source, int depth) {
  const Level level(*this);
  if (depth >= budget_.limits().calls) {
    throw TemplateError(Fault::limit, cat("loops recurse deeper than the limit of ", budget_.limits().calls));
  }
  budget_.items(node.slots);
  const Activation activation(*this, Ref<Frame>(new Frame(node.slots, home)));
  Capture capture(*this);
  iterate(node, home, source, depth);
  return capture.take();
}

/// Runs the body once for every item of a LoopItems or LoopObject. Whether any round came to its end.
template <class Items>
bool Interpreter::run_rounds(const Loop& node, Items& items) {
  bool finished = false;
  while (true) {
    Value item;
    if (!items.next(item)) return finished;
    assign(*node.target, std::move(item));
    enter(node.loads);
    const Flow flow = run(node.body);
    if (flow == Flow::leave_loop) return finished;
    if (flow == Flow::next) finished = true;
  }
}

Interpreter::Flow Interpreter::iterate(const Loop& node, const Ref<Frame>& home, const Value& source, int depth) {
  if (node.test) {
    const Activation activation(*this, home);
    enter(node.test_loads);
  }
  bool finished_a_round = false;
  if (node.uses_loop) {
    const bool holds_frame = node.test || node.recursive;
    const Ref<LoopObject> loop(
        new LoopObject(*this, node, holds_frame ? keep_frame(home) : Ref<Frame>(), source, depth));
    frame_->slots[node.loop_index] = Value(Ref<Object>(loop.get()));
    finished_a_round = run_rounds(node, *loop);
    frame_->slots[node.loop_index] = Value::missing();
  } else {
    LoopItems items(*this, node, home, source);
    finished_a_round = run_rounds(node, items);
  }
  // As in jinja2, `else` is for loops of which no round came to its end, be it by break or continue.
  if (finished_a_round || node.otherwise.empty()) return Flow::next;
  enter(node.else_loads);
  return run(node.otherwise);
}

bool Interpreter::passes_test(const Loop& node, const Ref<Frame>& home, const Value& item) {
  const Activation activation(*this, home);
  assign(*node.test_target, item);
  return jinja::truth(evaluate(*node.test));
}

// ---- Macros
// ----------------------------------------------------------------------------------------------------------

void Interpreter::run_macro(const Macro& node) {
  variable(node.target.slot) = make_object<MacroObject>(node.function, keep_frame(frame_));
}

void Interpreter::run_call_block(const CallBlock& node) {
  const Value caller = make_object<MacroObject>(node.function, keep_frame(frame_));
  const Level level(*this);
  print(evaluate_call(static_cast<const Call&>(*node.call), &caller));
}

Value Interpreter::run_function(const Function& function, const Ref<Frame>& home, Arguments& arguments) {
  const Level level(*this);
  if (calls_ >= budget_.limits().calls) {
    throw TemplateError(Fault::limit, cat("macros call each other deeper than the limit of ", budget_.limits().calls));
  }
  ++calls_;
  struct Leave {
    int& calls;
    ~Leave() { --calls; }
  } leave{calls_};
  budget_.items(function.slots);
  Ref<Frame> frame(new Frame(function.slots, home));
  bind_parameters(function, arguments, frame->slots);
  const Activation activation(*this, std::move(frame));
  enter(function.loads);
  const size_t first_default = function.parameters.size() - function.defaults.size();
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const Name& parameter = *function.parameters[i];
    if (!variable(parameter.slot).is_missing()) continue;
    Value value = i >= first_default
                      ? evaluate(*function.defaults[i - first_default])
                      : Value::undefined_hint(cat("parameter ", quoted(parameter.name.string()), " was not provided"));
    variable(parameter.slot) = std::move(value);
  }
  Capture capture(*this);
  run(function.body);
  return capture.take();
}

}  // namespace gristmill::jinja
