#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace gristmill::jinja {

/// Renders `source`; `context` is a JSON object.
inline std::string render(std::string_view source, std::string_view context = "{}", const RenderOptions& options = {}) {
  return Template::parse(source).render(parse_json(context).dict(), options);
}

/// The error of a template that must fail, be it in parsing or rendering.
inline TemplateError failure(std::string_view source, std::string_view context = "{}",
                             const RenderOptions& options = {}) {
  try {
    const std::string text = render(source, context, options);
    ADD_FAILURE() << source << " did not fail but gave: " << text;
  } catch (const TemplateError& error) {
    return error;
  }
  return {Fault::runtime, "no error"};
}

/// "line:column message" of the error.
inline std::string failure_at(std::string_view source, std::string_view context = "{}") {
  const TemplateError error = failure(source, context);
  return cat(error.line(), ":", error.column(), " ", error.message());
}

/// One expression and the text it must print.
struct Example {
  std::string_view expression;
  std::string_view text;
};

inline void check(std::initializer_list<Example> examples, std::string_view context = "{}") {
  for (const auto& [expression, text] : examples) {
    try {
      EXPECT_EQ(render(cat("{{ ", expression, " }}"), context), text) << expression;
    } catch (const TemplateError& error) {
      ADD_FAILURE() << expression << ": " << error.what();
    }
  }
}

}  // namespace gristmill::jinja
