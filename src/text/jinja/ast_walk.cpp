#include "text/jinja/ast_walk.h"

namespace gristmill::jinja {
namespace {

using VisitName = std::function<void(Name&)>;

void walk(Expression* node, const VisitName& visit);

void walk(ArgumentList& arguments, const VisitName& visit) {
  for (auto& argument : arguments.positional) walk(argument.get(), visit);
  for (auto& argument : arguments.named) walk(argument.second.get(), visit);
  walk(arguments.spread.get(), visit);
  walk(arguments.named_spread.get(), visit);
}

template <class Items>
void walk_all(Items& items, const VisitName& visit) {
  for (auto& item : items) walk(item.get(), visit);
}

void walk(Expression* node, const VisitName& visit) {
  if (!node) return;
  switch (node->kind) {
    case ExpressionKind::literal:
    case ExpressionKind::namespace_target:
      return;
    case ExpressionKind::name:
      return visit(static_cast<Name&>(*node));
    case ExpressionKind::sequence:
      return walk_all(static_cast<Sequence&>(*node).items, visit);
    case ExpressionKind::dict:
      for (auto& [key, value] : static_cast<DictDisplay&>(*node).items) {
        walk(key.get(), visit);
        walk(value.get(), visit);
      }
      return;
    case ExpressionKind::attribute:
      return walk(static_cast<Attribute&>(*node).object.get(), visit);
    case ExpressionKind::subscript: {
      auto& subscript = static_cast<Subscript&>(*node);
      walk(subscript.object.get(), visit);
      return walk(subscript.index.get(), visit);
    }
    case ExpressionKind::slice: {
      auto& slice = static_cast<Slice&>(*node);
      for (auto* part : {&slice.object, &slice.start, &slice.stop, &slice.step}) walk(part->get(), visit);
      return;
    }
    case ExpressionKind::call: {
      auto& call = static_cast<Call&>(*node);
      walk(call.callee.get(), visit);
      return walk(call.arguments, visit);
    }
    case ExpressionKind::filter: {
      auto& filter = static_cast<Filter&>(*node);
      walk(filter.input.get(), visit);
      return walk(filter.arguments, visit);
    }
    case ExpressionKind::test: {
      auto& test = static_cast<Test&>(*node);
      walk(test.input.get(), visit);
      return walk(test.arguments, visit);
    }
    case ExpressionKind::unary:
      return walk(static_cast<Unary&>(*node).operand.get(), visit);
    case ExpressionKind::binary: {
      auto& binary = static_cast<Binary&>(*node);
      walk(binary.left.get(), visit);
      return walk(binary.right.get(), visit);
    }
    case ExpressionKind::logic:
      return walk_all(static_cast<Logic&>(*node).operands, visit);
    case ExpressionKind::concat:
      return walk_all(static_cast<Concat&>(*node).parts, visit);
    case ExpressionKind::compare: {
      auto& compare = static_cast<Compare&>(*node);
      walk(compare.first.get(), visit);
      for (auto& link : compare.links) walk(link.second.get(), visit);
      return;
    }
    case ExpressionKind::conditional: {
      auto& conditional = static_cast<Conditional&>(*node);
      walk(conditional.condition.get(), visit);
      walk(conditional.then.get(), visit);
      return walk(conditional.otherwise.get(), visit);
    }
  }
}

/// Looks for reads of a few names; a name that is assigned drops out of the search.
class FreeNames {
 public:
  explicit FreeNames(std::set<std::string> names) : names_(std::move(names)) {}

  void body(const Body& statements) {
    for (const auto& node : statements) statement(*node);
  }
  std::set<std::string> take() { return std::move(found_); }

 private:
  void read(const Expression* node) {
    if (!node) return;
    for_each_name(*node, [&](const Value& name, Position) {
      if (names_.contains(name.string())) found_.insert(name.string());
    });
  }

  void assign(const Expression& node) {
    for_each_target(node, [&](const Expression& leaf) {
      if (leaf.kind == ExpressionKind::name) names_.erase(static_cast<const Name&>(leaf).name.string());
    });
  }

  void function(const Function& node) {
    for (const auto& parameter : node.parameters) names_.erase(parameter->name.string());
    for (const auto& value : node.defaults) read(value.get());
    body(node.body);
  }

  void statement(const Statement& node) {
    switch (node.kind) {
      case StatementKind::print:
        return read(static_cast<const Print&>(node).value.get());
      case StatementKind::set: {
        const auto& set = static_cast<const Set&>(node);
        assign(*set.target);
        return read(set.value.get());
      }
      case StatementKind::set_block: {
        const auto& block = static_cast<const SetBlock&>(node);
        assign(*block.target);
        read(block.filter.get());
        return body(block.body);
      }
      case StatementKind::loop: {
        const auto& loop = static_cast<const Loop&>(node);
        assign(*loop.target);
        read(loop.source.get());
        body(loop.body);
        body(loop.otherwise);
        return read(loop.test.get());
      }
      case StatementKind::branch: {
        const auto& branch = static_cast<const Branch&>(node);
        for (const auto& [condition, statements] : branch.cases) {
          read(condition.get());
          body(statements);
        }
        return body(branch.otherwise);
      }
      case StatementKind::macro:
        return function(static_cast<const Macro&>(node).function);
      case StatementKind::call_block:
        read(static_cast<const CallBlock&>(node).call.get());
        return function(static_cast<const CallBlock&>(node).function);
      case StatementKind::generation:
        return function(static_cast<const Generation&>(node).function);
      case StatementKind::filter_block: {
        const auto& block = static_cast<const FilterBlock&>(node);
        body(block.body);
        return read(block.filter.get());
      }
      case StatementKind::with: {
        const auto& with = static_cast<const With&>(node);
        for (const auto& variable : with.variables) assign(*variable.first);
        for (const auto& variable : with.variables) read(variable.second.get());
        return body(with.body);
      }
      default:
        return;
    }
  }

  std::set<std::string> names_, found_;
};

}  // namespace

void for_each_name_node(Expression& node, const std::function<void(Name&)>& visit) {
  walk(&node, visit);
}

void for_each_name(const Expression& node, const std::function<void(const Value& name, Position at)>& visit) {
  // The walk itself changes nothing.
  walk(const_cast<Expression*>(&node), [&](Name& name) { visit(name.name, name.at); });
}

std::set<std::string> free_names(const Body& body, std::set<std::string> names) {
  FreeNames search(std::move(names));
  search.body(body);
  return search.take();
}

}  // namespace gristmill::jinja
