#pragma once
#include "text/jinja/ast.h"

namespace gristmill::jinja {

/// Gives every name of the tree its slot and every scope its loads, by jinja2's rules of scope (its documentation,
/// "Scope Behavior"): bodies of loops, macros, with, filter and set blocks are scopes, branches are not; a variable
/// that an inner scope assigns starts there with the outer value and is gone at its end.
void resolve_names(Tree& tree);

}  // namespace gristmill::jinja
