#include "text/jinja/template.h"

#include <new>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

namespace gristmill::jinja {

Template::Template(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Template Template::parse(std::string_view source, const ParseLimits& limits) {
  return Template(std::make_unique<const Tree>(jinja::parse(source, limits)));
}

std::string Template::render(const Dict& context, const RenderOptions& options) const {
  try {
    return Interpreter(*tree_, context, options).render();
  } catch (const std::bad_alloc&) {
    throw TemplateError(Fault::limit, "the template needs more memory than there is");
  }
}

}  // namespace gristmill::jinja
