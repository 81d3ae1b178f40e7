#pragma once
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/limits.h"

namespace gristmill::jinja {

/// Parses a template and resolves its names. Throws TemplateError (syntax or limit).
Tree parse(std::string_view source, const ParseLimits& limits);

}  // namespace gristmill::jinja
