#include "text/jinja/jinja_test.h"

namespace gristmill::jinja {
namespace {

TEST(JinjaWhitespace, TheNewlineBehindABlockIsTrimmedAndBehindAPrintIsKept) {
  EXPECT_EQ(render("{% if true %}\na\n{% endif %}\nb"), "a\nb");
  EXPECT_EQ(render("{{ 1 }}\n{{ 2 }}"), "1\n2");
  EXPECT_EQ(render("{# note #}\nb"), "b");
  EXPECT_EQ(render("{% if true +%}\na{% endif %}"), "\na");
}

TEST(JinjaWhitespace, SpaceInFrontOfABlockOnItsLineIsStripped) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}"), "a\nb\n");
  EXPECT_EQ(render("  {# note #}\nb"), "b");
  EXPECT_EQ(render("  {{ 1 }}"), "  1");
  EXPECT_EQ(render("x  {% if true %}y{% endif %}"), "x  y");
  EXPECT_EQ(render("  {%+ if true %}y{% endif %}"), "  y");
  // A line that a block's end has begun counts as one too.
  EXPECT_EQ(render("{% if true %}\n  {% if true %}a{% endif %}{% endif %}"), "a");
}

TEST(JinjaWhitespace, MinusSignsStripAllSpaceAndLines) {
  EXPECT_EQ(render("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render("a \n {%- if true -%} \n b \n {%- endif -%} \n c"), "abc");
  EXPECT_EQ(render("a {#- note -#} b"), "ab");
  EXPECT_EQ(render("a\u00a0\u3000{{- 1 }}"), "a1");
}

TEST(JinjaWhitespace, OneNewlineAtTheEndIsDroppedAndAllKindsOfNewlinesBecomeOne) {
  EXPECT_EQ(render("a\n"), "a");
  EXPECT_EQ(render("a\n\n"), "a\n");
  EXPECT_EQ(render("a\r\nb\rc\r\n"), "a\nb\nc");
}

TEST(JinjaWhitespace, RawBlocksKeepEverything) {
  EXPECT_EQ(render("{% raw %}{{ x }}{% if %}{# #}{% endraw %}"), "{{ x }}{% if %}{# #}");
  EXPECT_EQ(render("a {%- raw -%} {{ x }} {%- endraw -%} b"), "a{{ x }}b");
  EXPECT_EQ(render("{% raw %}\na\n  {% endraw %}\nb"), "\na\nb");
}

TEST(JinjaWhitespace, BracesInsideATagDoNotEndIt) {
  EXPECT_EQ(render("{{ {'a': {'b': 1}}}}"), "{'a': {'b': 1}}");
  EXPECT_EQ(render("{{ '}}' ~ '%}' }}"), "}}%}");
  EXPECT_EQ(render("{ { {{ 1 }} } }"), "{ { 1 } }");
}

}  // namespace
}  // namespace gristmill::jinja
