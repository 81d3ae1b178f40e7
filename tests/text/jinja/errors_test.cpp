#include "text/jinja/jinja_test.h"

namespace gristmill::jinja {
namespace {

TEST(JinjaErrors, SyntaxErrorsNameLineAndColumn) {
  EXPECT_EQ(failure_at("a\nb {{ 1 + }}"), "2:10 expected an expression, got '}}'");
  EXPECT_EQ(failure_at("äö {{ a ! b }}"), "1:9 unexpected character '!'");
  EXPECT_EQ(failure_at("{{ (1 }}"), "1:7 unexpected '}', expected ')'");
  EXPECT_EQ(failure_at("x\n{{ 'abc }}"), "2:4 the string is not closed: ' is missing");
  EXPECT_EQ(failure_at("x {# y"), "1:3 the comment is not closed: '#}' is missing");
  EXPECT_EQ(failure_at("x {{ y"), "1:3 the tag is not closed: '}}' is missing");
  EXPECT_EQ(failure_at("{% raw %} y"), "1:1 the raw block is not closed: '{% endraw %}' is missing");
  EXPECT_EQ(failure_at("{% for x in y %}\n{{ x }}"),
            "2:8 the template ends inside 'for': 'endfor' or 'else' is missing");
  EXPECT_EQ(failure_at("{% if x %}{% endfor %}"),
            "1:14 there is no tag 'endfor' ('elif' or 'else' or 'endif' ends the open 'if')");
  EXPECT_EQ(failure_at("{% frob %}"), "1:4 there is no tag 'frob'");
  EXPECT_EQ(failure_at("{% set 1 = 2 %}"), "1:8 expected a name to assign to, got a number");
  EXPECT_EQ(failure_at("{% set none = 2 %}"), "1:8 cannot assign to 'none'");
  EXPECT_EQ(failure_at("{{ f(a=1, 2) }}"), "1:5 the arguments of this call are in a wrong order");
  EXPECT_EQ(failure_at("{% break %}"), "1:4 'break' outside of a loop");
  EXPECT_EQ(failure_at("{% for i in l %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}"),
            "1:35 'continue' outside of a loop");
  EXPECT_EQ(failure("{{ }}").fault(), Fault::syntax);
}

TEST(JinjaErrors, WhatDoesNotExistIsToldBeforeRendering) {
  EXPECT_EQ(failure_at("{{ 1 | nope }}"), "1:8 there is no filter 'nope'");
  EXPECT_EQ(failure_at("{{ 1 is nope }}"), "1:9 there is no test 'nope'");
  EXPECT_THROW(Template::parse("{{ 1 | nope }}"), TemplateError);
  // In a branch that may never run it only matters when it does, as in jinja2.
  EXPECT_EQ(render("{% if false %}{{ 1 | nope }}{% endif %}ok"), "ok");
  EXPECT_EQ(failure_at("{% if true %}{{ 1 | nope }}{% endif %}"), "1:21 there is no filter 'nope'");
}

TEST(JinjaErrors, OtherFilesAreRefused) {
  for (const char* source : {"{% include 'a' %}", "{% import 'a' as b %}", "{% from 'a' import b %}",
                             "{% extends 'a' %}", "{% block a %}{% endblock %}"}) {
    const TemplateError error = failure(source);
    EXPECT_EQ(error.fault(), Fault::syntax) << source;
    EXPECT_NE(error.message().find("is not supported"), std::string::npos) << source;
    EXPECT_EQ(error.column(), 4) << source;
  }
}

TEST(JinjaErrors, RunTimeErrorsNameTheInnermostExpression) {
  EXPECT_EQ(failure_at("a\n  {{ x.y }}"), "2:8 'x' is undefined");
  EXPECT_EQ(failure_at("{{ [1, 2 + 'a'] }}"), "1:10 unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(failure_at("{% macro m(v) %}\n{{ v | first.x }}{% endmacro %}{{ m(1) }}"),
            "2:8 there is no filter 'first.x'");
  EXPECT_EQ(failure_at("{% macro m(v) %}\n{{ v | first }}{% endmacro %}{{ m(1) }}"),
            "2:8 'int' object is not iterable");
  EXPECT_EQ(failure_at("{% for a, b in [1] %}{% endfor %}"), "1:4 cannot unpack non-iterable int object");
}

TEST(JinjaErrors, RaiseExceptionGivesTheMessageOfTheTemplate) {
  const TemplateError error = failure("a\n{{ raise_exception('roles must ' ~ 'alternate') }}");
  EXPECT_EQ(error.fault(), Fault::raised);
  EXPECT_EQ(error.message(), "roles must alternate");
  EXPECT_EQ(std::string(error.what()), "line 2, column 4: roles must alternate");
}

}  // namespace
}  // namespace gristmill::jinja
