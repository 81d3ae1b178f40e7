#pragma once
#include <functional>
#include <set>
#include <string>

#include "text/jinja/ast.h"

/// Walks over the names of a tree, for the resolution of names.
namespace gristmill::jinja {

/// Every variable that an expression reads, in order of evaluation.
void for_each_name_node(Expression& node, const std::function<void(Name&)>& visit);
void for_each_name(const Expression& node, const std::function<void(const Value& name, Position at)>& visit);

/// The names and namespace attributes of a target, which may be a tuple of tuples.
template <class Node, class Visit>
void for_each_target(Node& node, const Visit& visit) {
  if (node.kind != ExpressionKind::sequence) return visit(node);
  for (auto& item : static_cast<const Sequence&>(node).items) for_each_target(static_cast<Node&>(*item), visit);
}

/// Those of `names` that the statements read before they assign them, macros and inner loops included.
std::set<std::string> free_names(const Body& body, std::set<std::string> names);

}  // namespace gristmill::jinja
