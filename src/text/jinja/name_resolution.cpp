#include "text/jinja/name_resolution.h"

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "text/jinja/ast_walk.h"

namespace gristmill::jinja {
namespace {

/// The frame of a template, macro, call block or recursive loop: one array of variables.
struct FrameLayout {
  FrameLayout* outer = nullptr;
  uint16_t slots = 0;

  uint16_t allocate(Position at) {
    if (slots == std::numeric_limits<uint16_t>::max()) {
      throw TemplateError(Fault::limit, "the template has too many variables", at);
    }
    return slots++;
  }
};

/// A variable: its frame and place.
struct Variable {
  FrameLayout* layout = nullptr;
  uint16_t index = 0;
};

/// One lexical scope. The branches of an `if` are no scopes: each is analyzed as an overlay on the scope around it, and
/// merged into it afterwards, so that what any of them stores is known behind it.
class Scope {
 public:
  Scope(const Scope* outer, FrameLayout* layout)
      : outer_(outer), layout_(layout), slots_(std::make_shared<std::unordered_map<std::string, uint16_t>>()) {}

  Scope overlay() const {
    Scope branch(outer_, layout_);
    branch.base_ = this;
    branch.slots_ = slots_;
    return branch;
  }

  FrameLayout* layout() const { return layout_; }

  const Variable* find(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->outer_) {
      if (const Variable* own = scope->find_own(name)) return own;
    }
    return nullptr;
  }

  uint16_t declare_parameter(const std::string& name, Position at) {
    stores_.insert(name);
    return define(name, std::nullopt, at);
  }

  void store(const Value& name, Position at) {
    stores_.insert(name.string());
    if (find_own(name.string())) return;
    const Variable* outer = outer_ ? outer_->find(name.string()) : nullptr;
    define(name.string(), outer ? copy_of(*outer) : PendingLoad{}, at);
  }

  void load(const Value& name, Position at) {
    if (!find(name.string())) define(name.string(), PendingLoad{Load::Action::resolve, {}, name}, at);
  }

  /// Takes over what the branches of an `if`, all overlays of this scope, have defined and stored.
  void merge(const std::vector<Scope>& branches) {
    std::set<std::string> stored;
    for (const Scope& branch : branches) {
      for (const std::string& name : branch.stores_) {
        if (!stores(name)) stored.insert(name);
      }
    }
    for (const Scope& branch : branches) {
      for (const auto& [name, variable] : branch.variables_) variables_[name] = variable;
      for (const auto& [index, load] : branch.loads_) loads_[index] = load;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    // Not every branch stores these, so behind the `if` they may still have the value from before.
    for (const std::string& name : stored) {
      const Variable* outer = outer_ ? outer_->find(name) : nullptr;
      loads_[find(name)->index] = outer ? copy_of(*outer) : PendingLoad{Load::Action::resolve, {}, Value(name)};
    }
  }

  Loads loads() const {
    Loads out;
    for (const auto& [index, load] : loads_) {
      if (load) out.push_back({load->action, index, slot_of(load->from), load->name});
    }
    return out;
  }

  Slot slot_of(const Variable& variable) const {
    Slot slot{0, variable.index};
    for (const FrameLayout* layout = layout_; variable.layout && layout != variable.layout; layout = layout->outer) {
      ++slot.hops;
    }
    return slot;
  }

 private:
  struct PendingLoad {
    Load::Action action = Load::Action::clear;
    Variable from;
    Value name;
  };

  static PendingLoad copy_of(const Variable& outer) { return {Load::Action::copy, outer, {}}; }

  const Variable* find_own(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->base_) {
      if (const auto found = scope->variables_.find(name); found != scope->variables_.end()) return &found->second;
    }
    return nullptr;
  }

  bool stores(const std::string& name) const { return stores_.contains(name) || (base_ && base_->stores(name)); }

  uint16_t define(const std::string& name, std::optional<PendingLoad> load, Position at) {
    const auto [entry, is_new] = slots_->try_emplace(name, uint16_t{0});
    if (is_new) entry->second = layout_->allocate(at);
    variables_[name] = {layout_, entry->second};
    loads_[entry->second] = std::move(load);
    return entry->second;
  }

  const Scope* outer_;
  const Scope* base_ = nullptr;  ///< of an overlay: the scope or overlay below
  FrameLayout* layout_;
  std::shared_ptr<std::unordered_map<std::string, uint16_t>> slots_;  ///< shared with the overlays
  std::unordered_map<std::string, Variable> variables_;
  std::map<uint16_t, std::optional<PendingLoad>> loads_;  ///< parameters have none
  std::set<std::string> stores_;
};

/// First pass over the statements of a scope: which names it loads and stores, in order. Inner scopes are not entered.
class Analysis {
 public:
  explicit Analysis(Scope& scope) : scope_(&scope) {}

  void body(const Body& statements) {
    for (const auto& statement : statements) this->statement(*statement);
  }

  void expression(const Expression* node) {
    if (node) {
      for_each_name(*node, [&](const Value& name, Position at) { scope_->load(name, at); });
    }
  }

  void target(const Expression& node, bool parameter) {
    for_each_target(node, [&](const Expression& leaf) {
      if (leaf.kind == ExpressionKind::namespace_target) {
        scope_->load(static_cast<const NamespaceTarget&>(leaf).name, leaf.at);
      } else if (parameter) {
        scope_->declare_parameter(static_cast<const Name&>(leaf).name.string(), leaf.at);
      } else {
        scope_->store(static_cast<const Name&>(leaf).name, leaf.at);
      }
    });
  }

 private:
  void statement(const Statement& node) {
    switch (node.kind) {
      case StatementKind::print:
        return expression(static_cast<const Print&>(node).value.get());
      case StatementKind::set: {
        const auto& set = static_cast<const Set&>(node);
        expression(set.value.get());
        return target(*set.target, false);
      }
      case StatementKind::set_block:
        return target(*static_cast<const SetBlock&>(node).target, false);
      case StatementKind::loop:
        return expression(static_cast<const Loop&>(node).source.get());
      case StatementKind::branch:
        return branch(static_cast<const Branch&>(node));
      case StatementKind::macro:
        return scope_->store(static_cast<const Macro&>(node).target.name, node.at);
      case StatementKind::call_block:
        return expression(static_cast<const CallBlock&>(node).call.get());
      case StatementKind::filter_block:
        return expression(static_cast<const FilterBlock&>(node).filter.get());
      case StatementKind::with:
        for (const auto& variable : static_cast<const With&>(node).variables) expression(variable.second.get());
        return;
      default:
        return;
    }
  }

  /// Runs `work` on an overlay of the current scope and returns that.
  template <class Work>
  Scope overlaid(const Work& work) {
    Scope branch = scope_->overlay();
    Scope* below = std::exchange(scope_, &branch);
    work();
    scope_ = below;
    return branch;
  }

  void branch(const Branch& node) {
    expression(node.cases[0].first.get());
    std::vector<Scope> branches;
    branches.push_back(overlaid([&] { body(node.cases[0].second); }));
    branches.push_back(overlaid([&] {
      for (size_t i = 1; i < node.cases.size(); ++i) {
        expression(node.cases[i].first.get());
        std::vector<Scope> alone;
        alone.push_back(overlaid([&] { body(node.cases[i].second); }));
        scope_->merge(alone);
      }
    }));
    branches.push_back(overlaid([&] { body(node.otherwise); }));
    scope_->merge(branches);
  }

  Scope* scope_;
};

/// Second pass: writes the slots into the tree, scope by scope.
class Resolver {
 public:
  void tree(Tree& node) {
    FrameLayout layout;
    Scope scope(nullptr, &layout);
    Analysis(scope).body(node.body);
    body(node.body, scope);
    node.loads = scope.loads();
    node.slots = layout.slots;
  }

 private:
  void body(Body& statements, const Scope& scope) {
    for (auto& statement : statements) this->statement(*statement, scope);
  }

  void expression(Expression* node, const Scope& scope) {
    if (!node) return;
    for_each_name_node(*node, [&](Name& name) { name.slot = use(name.name, scope); });
  }

  void target(Expression& node, const Scope& scope) {
    for_each_target(node, [&](Expression& leaf) {
      if (leaf.kind == ExpressionKind::namespace_target) {
        auto& reference = static_cast<NamespaceTarget&>(leaf);
        reference.slot = use(reference.name, scope);
      } else {
        auto& name = static_cast<Name&>(leaf);
        name.slot = scope.slot_of(*scope.find(name.name.string()));
      }
    });
  }

  Slot use(const Value& name, const Scope& scope) {
    const Variable* variable = scope.find(name.string());
    used_.insert({variable->layout, variable->index});
    return scope.slot_of(*variable);
  }

  void statement(Statement& node, const Scope& scope) {
    switch (node.kind) {
      case StatementKind::print:
        return expression(static_cast<Print&>(node).value.get(), scope);
      case StatementKind::set: {
        auto& set = static_cast<Set&>(node);
        expression(set.value.get(), scope);
        return target(*set.target, scope);
      }
      case StatementKind::set_block:
        return set_block(static_cast<SetBlock&>(node), scope);
      case StatementKind::loop:
        return loop(static_cast<Loop&>(node), scope);
      case StatementKind::branch: {
        auto& branch = static_cast<Branch&>(node);
        for (auto& [condition, statements] : branch.cases) {
          expression(condition.get(), scope);
          body(statements, scope);
        }
        return body(branch.otherwise, scope);
      }
      case StatementKind::macro: {
        auto& macro = static_cast<Macro&>(node);
        function(macro.function, scope, node.at);
        return target(macro.target, scope);
      }
      case StatementKind::call_block: {
        auto& block = static_cast<CallBlock&>(node);
        function(block.function, scope, node.at);
        return expression(block.call.get(), scope);
      }
      case StatementKind::generation:
        return function(static_cast<Generation&>(node).function, scope, node.at);
      case StatementKind::filter_block:
        return filter_block(static_cast<FilterBlock&>(node), scope);
      case StatementKind::with:
        return with(static_cast<With&>(node), scope);
      default:
        return;
    }
  }

  void set_block(SetBlock& node, const Scope& scope) {
    Scope inner(&scope, scope.layout());
    Analysis analysis(inner);
    analysis.body(node.body);
    analysis.expression(node.filter.get());
    body(node.body, inner);
    expression(node.filter.get(), inner);
    target(*node.target, scope);
    node.loads = inner.loads();
  }

  void filter_block(FilterBlock& node, const Scope& scope) {
    Scope inner(&scope, scope.layout());
    Analysis analysis(inner);
    analysis.body(node.body);
    analysis.expression(node.filter.get());
    body(node.body, inner);
    expression(node.filter.get(), inner);
    node.loads = inner.loads();
  }

  void with(With& node, const Scope& scope) {
    Scope inner(&scope, scope.layout());
    Analysis analysis(inner);
    for (auto& variable : node.variables) analysis.target(*variable.first, true);
    analysis.body(node.body);
    for (auto& [name, value] : node.variables) {
      expression(value.get(), scope);
      target(*name, inner);
    }
    body(node.body, inner);
    node.loads = inner.loads();
  }

  void loop(Loop& node, const Scope& scope) {
    expression(node.source.get(), scope);
    if (node.test) {
      Scope test_scope(&scope, scope.layout());
      Analysis analysis(test_scope);
      analysis.target(*node.test_target, true);
      analysis.expression(node.test.get());
      target(*node.test_target, test_scope);
      expression(node.test.get(), test_scope);
      node.test_loads = test_scope.loads();
    }
    FrameLayout own{scope.layout()};
    FrameLayout* layout = node.recursive ? &own : scope.layout();
    Scope inner(&scope, layout);
    node.loop_index = inner.declare_parameter("loop", node.at);
    Analysis analysis(inner);
    analysis.target(*node.target, true);
    analysis.body(node.body);
    target(*node.target, inner);
    body(node.body, inner);
    node.loads = inner.loads();
    node.uses_loop = used_.contains({layout, node.loop_index});

    Scope else_scope(&scope, layout);
    Analysis(else_scope).body(node.otherwise);
    body(node.otherwise, else_scope);
    node.else_loads = else_scope.loads();
    node.slots = own.slots;
  }

  void function(Function& node, const Scope& scope, Position at) {
    FrameLayout layout{scope.layout()};
    Scope inner(&scope, &layout);
    const auto analyze = [&] {
      Analysis analysis(inner);
      for (const auto& parameter : node.parameters) analysis.target(*parameter, true);
      for (const auto& value : node.defaults) analysis.expression(value.get());
      analysis.body(node.body);
    };
    analyze();
    special_parameters(node, inner, at);
    analyze();
    for (auto& parameter : node.parameters) target(*parameter, inner);
    for (auto& value : node.defaults) expression(value.get(), inner);
    body(node.body, inner);
    node.loads = inner.loads();
    node.slots = layout.slots;
  }

  /// `caller`, `kwargs` and `varargs` are parameters of every macro whose body asks for them.
  void special_parameters(Function& node, Scope& inner, Position at) {
    const std::set<std::string> asked = free_names(node.body, {"caller", "kwargs", "varargs"});
    std::map<std::string, size_t> own;
    for (size_t i = 0; i < node.parameters.size(); ++i) own[node.parameters[i]->name.string()] = i;
    node.caller_is_parameter = own.contains("caller");
    if (asked.contains("caller")) {
      if (!node.caller_is_parameter) {
        node.takes_caller = true;
        node.caller_index = inner.declare_parameter("caller", at);
      } else if (own["caller"] + node.defaults.size() < node.parameters.size()) {
        throw TemplateError(Fault::syntax, "the parameter 'caller' must be left out or have a default", at);
      }
    }
    if (asked.contains("kwargs") && !own.contains("kwargs")) {
      node.takes_kwargs = true;
      node.kwargs_index = inner.declare_parameter("kwargs", at);
    }
    if (asked.contains("varargs") && !own.contains("varargs")) {
      node.takes_varargs = true;
      node.varargs_index = inner.declare_parameter("varargs", at);
    }
  }

  /// Variables that are read. Layouts that are gone may share an address, which at worst makes a `loop` for nothing.
  std::set<std::pair<const FrameLayout*, uint16_t>> used_;
};

}  // namespace

void resolve_names(Tree& tree) {
  Resolver().tree(tree);
}

}  // namespace gristmill::jinja
