#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/object.h"
#include "text/jinja/template.h"

namespace gristmill::jinja {

/// The variables of one activation of a template, macro or recursive loop.
struct Frame final : Shared {
  Frame(size_t size, Ref<Frame> around) : slots(size, Value::missing()), outer(std::move(around)) {}
  std::vector<Value> slots;
  Ref<Frame> outer;
  bool captured = false;
};

/// Walks a tree once, for one render. Not thread safe; the tree may be shared.
class Interpreter {
 public:
  Interpreter(const Tree& tree, const Dict& context, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string render();

  // ---- For built-ins and objects
  Budget& budget() { return budget_; }
  const RenderOptions& options() const { return options_; }
  /// `object[key]`: items first, then attributes; undefined if there is neither.
  Value get_item(const Value& object, const Value& key);
  /// `object.name`: attributes first, then items.
  Value get_attribute(const Value& object, const Value& name, const Methods& methods);
  Value call(const Value& callee, Arguments& arguments);
  /// str(value), as a value.
  Value text_of(const Value& value);
  /// Keeps `object` until the end of the render and clears it then.
  void keep(Ref<Object> object) { kept_.push_back(std::move(object)); }
  /// Runs a macro or call block defined in `home`.
  Value run_function(const Function& function, const Ref<Frame>& home, Arguments& arguments);
  /// Runs a recursive loop once more, `depth` levels in, and returns its text.
  Value run_recursive_loop(const Loop& node, const Ref<Frame>& home, const Value& source, int depth);
  /// Whether `item` passes the condition of a loop in frame `home`.
  bool passes_test(const Loop& node, const Ref<Frame>& home, const Value& item);

 private:
  enum class Flow { next, leave_loop, next_round };
  class Level;
  class Activation;
  class Capture;

  // Statements (statements.cpp)
  Flow run(const Body& body);
  Flow run(const Statement& node);
  Flow run_branch(const Branch& node);
  Flow run_set_block(const SetBlock& node);
  Flow run_filter_block(const FilterBlock& node);
  Flow run_with(const With& node);
  Flow run_loop(const Loop& node);
  template <class Items>
  bool run_rounds(const Loop& node, Items& items);
  Flow iterate(const Loop& node, const Ref<Frame>& home, const Value& source, int depth);
  void run_call_block(const CallBlock& node);
  void run_macro(const Macro& node);
  void set(const Set& node);
  void check_namespaces(const Expression& target);
  void assign(const Expression& target, Value value);
  void unpack(const Sequence& target, const Value& value);
  void enter(const Loads& loads);
  void write(std::string_view text);
  void print(const Value& value);
  /// Keeps `frame` until the end of the render, where it is emptied: something holds it that it may hold itself.
  Ref<Frame> keep_frame(const Ref<Frame>& frame);

  // Expressions (expressions.cpp)
  Value evaluate(const Expression& node);
  Value evaluate_node(const Expression& node);
  Value evaluate_name(const Name& node);
  Value evaluate_sequence(const Sequence& node);
  Value evaluate_dict(const DictDisplay& node);
  Value evaluate_slice(const Slice& node);
  Value evaluate_call(const Call& node, const Value* caller);
  Value evaluate_filter(const Filter& node);
  bool evaluate_test(const Test& node);
  Value evaluate_unary(const Unary& node);
  Value evaluate_logic(const Logic& node);
  Value evaluate_concat(const Concat& node);
  bool evaluate_compare(const Compare& node);
  Value evaluate_conditional(const Conditional& node);
  Arguments evaluate_arguments(const ArgumentList& list);
  Value member_or_undefined(const Value& object, const Value& name, const Methods& methods);
  Value& variable(Slot slot);
  Value resolve(const Value& name) const;

  const Tree& tree_;
  const Dict& context_;
  const RenderOptions& options_;
  Budget budget_;
  int depth_ = 0;
  int calls_ = 0;
  Ref<Frame> frame_;
  std::string result_;
  std::string* out_ = &result_;
  const Value* block_text_ = nullptr;  ///< what filters without input work on
  std::vector<Ref<Frame>> captured_;
  std::vector<Ref<Object>> kept_;
};

}  // namespace gristmill::jinja
