#include "text/jinja/jinja_test.h"

namespace gristmill::jinja {
namespace {

constexpr std::string_view numbers = R"({"l": [3, 1, 2], "d": {"a": 1, "b": 2}, "x": "outer"})";

TEST(JinjaLoops, TheLoopVariableKnowsItsPlace) {
  EXPECT_EQ(render("{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
                   "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}|{% endfor %}",
                   numbers),
            "1032TrueFalse31|2121FalseFalse31|3210FalseTrue31|");
  EXPECT_EQ(render("{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", numbers),
            "<3>1 3<1>2 1<2> ");
  EXPECT_EQ(render("{% for i in [1, 1, 2] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }} {% endfor %}"),
            "aTrue bFalse aTrue ");
}

TEST(JinjaLoops, SourcesMayBeLazyAndConditionsAreTestedAsTheLoopGoes) {
  EXPECT_EQ(render("{% for i in l | map('string') %}{{ loop.length }}{{ i }}{{ loop.last }} {% endfor %}", numbers),
            "33False 31False 32True ");
  EXPECT_EQ(render("{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{{ loop.nextitem }} {% endfor %}", numbers),
            "322 22 ");
  EXPECT_EQ(render("{% set ns = namespace(stop=false) %}{% for i in l if not ns.stop %}{{ i }}"
                   "{% set ns.stop = true %}{% endfor %}",
                   numbers),
            "3");
}

TEST(JinjaLoops, BreakContinueAndElse) {
  EXPECT_EQ(render("{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", numbers), "32");
  EXPECT_EQ(render("{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", numbers), "3");
  EXPECT_EQ(render("{% for i in [] %}{{ i }}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for i in unknown %}{{ i }}{% else %}none{% endfor %}"), "none");
  // jinja2's else also runs when no round was finished.
  EXPECT_EQ(render("{% for i in l %}{% break %}{% else %}else{% endfor %}", numbers), "else");
  EXPECT_EQ(render("{% for i in l %}{% for j in l %}{% break %}{% endfor %}{{ i }}{% endfor %}", numbers), "312");
}

TEST(JinjaLoops, RecursiveLoopsCallThemselves) {
  EXPECT_EQ(render("{% for n in tree recursive %}{{ n.v }}@{{ loop.depth }}({{ loop(n.c) }}){% endfor %}",
                   R"({"tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": []}]}]})"),
            "1@1(2@2()3@2())");
  EXPECT_NE(failure("{% for n in [1] %}{{ loop([]) }}{% endfor %}").message().find("recursive"), std::string::npos);
}

TEST(JinjaLoops, TargetsUnpack) {
  EXPECT_EQ(render("{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}", numbers), "a=1 b=2 ");
  EXPECT_EQ(render("{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}"), "123");
  EXPECT_EQ(failure("{% for a, b in [(1,)] %}{% endfor %}").message(),
            "not enough values to unpack (expected 2, got 1)");
  EXPECT_EQ(failure("{% for a, b in [(1, 2, 3)] %}{% endfor %}").message(), "too many values to unpack (expected 2)");
}

TEST(JinjaScopes, LoopsForgetWhatTheySetAndBranchesDoNot) {
  EXPECT_EQ(render("{% for i in l %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}", numbers),
            "outer3 outer1 outer2 outer");
  EXPECT_EQ(render("{% if true %}{% set y = 1 %}{% endif %}{{ y }}"), "1");
  EXPECT_EQ(render("{% if false %}{% set x = 1 %}{% endif %}{{ x }}", numbers), "outer");
  EXPECT_EQ(render("{% for x in l %}{% endfor %}{{ x }}", numbers), "outer");
}

TEST(JinjaScopes, NamespacesCarryValuesOutOfLoops) {
  EXPECT_EQ(render("{% set ns = namespace(sum=0) %}{% for i in l %}{% set ns.sum = ns.sum + i %}{% endfor %}"
                   "{{ ns.sum }} {{ ns }}",
                   numbers),
            "6 <Namespace {'sum': 6}>");
  EXPECT_EQ(failure("{% set d.a = 1 %}", numbers).message(), "cannot assign attribute on non-namespace object");
  EXPECT_EQ(failure("{% set ns = namespace() %}{% set ns._a = 1 %}").fault(), Fault::runtime);
}

TEST(JinjaScopes, WithAndSetBlocksAreScopes) {
  EXPECT_EQ(render("{% with a = 1, b = x %}{{ a }}{{ b }}{% set x = 2 %}{% endwith %}{{ a }}{{ x }}", numbers),
            "1outerouter");
  EXPECT_EQ(render("{% set t %}{% set x = 1 %}<{{ x }}>{% endset %}{{ t }}{{ x }}", numbers), "<1>outer");
  EXPECT_EQ(render("{% set t | upper | replace('B', '-') %}abc{% endset %}{{ t }}"), "A-C");
  EXPECT_EQ(render("{% set a, b = 1, 2 %}{{ b }}{{ a }}"), "21");
}

TEST(JinjaScopes, MacrosSeeVariablesOfTheTemplateAsTheyAreWhenCalled) {
  EXPECT_EQ(render("{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{% set y = 1 %}{{ m() }}{% set y = 2 %}{{ m() }}"),
            "12");
  EXPECT_EQ(render("{% macro m() %}{% set x = 1 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", numbers), "1outer");
  EXPECT_EQ(
      render("{% for i in l %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }} {% endfor %}", numbers),
      "31 12 23 ");
}

TEST(JinjaMacros, ParametersHaveDefaultsAndNames) {
  EXPECT_EQ(
      render("{% macro m(a, b=a) %}{{ a }}{{ b }} {% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}"),
      "11 12 43  ");
  EXPECT_EQ(render("{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}"), "(2, 3){'k': 4}");
  EXPECT_EQ(render("{% macro m(a, b=1) %}{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}"),
            "<Macro 'm'>m('a', 'b')");
  EXPECT_EQ(failure("{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}").message(), "parameter 'a' was not provided");
  EXPECT_EQ(failure("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}").message(),
            "macro 'm' takes not more than 1 argument(s)");
  EXPECT_EQ(failure("{% macro m(a) %}{% endmacro %}{{ m(c=2) }}").message(), "macro 'm' takes no keyword argument 'c'");
}

TEST(JinjaMacros, CallBlocksPassTheirBodyAsCaller) {
  EXPECT_EQ(render("{% macro m(n) %}[{{ caller(n, k=2) }}]{% endmacro %}"
                   "{% call(a, k=1) m(7) %}{{ a }}{{ k }}{{ x }}{% endcall %}",
                   numbers),
            "[72outer]");
  EXPECT_EQ(render("{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}"),
            "FalseTrue");
  EXPECT_EQ(failure("{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}").fault(), Fault::runtime);
}

TEST(JinjaMacros, MacrosCallEachOtherAndThemselves) {
  EXPECT_EQ(render("{% macro down(n) %}{{ n }}{% if n %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(3) }}"),
            "3210");
  EXPECT_EQ(render("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}"), "B");
}

TEST(JinjaBlocks, FilterAndGenerationBlocks) {
  EXPECT_EQ(render("{% filter upper | replace('B', '-') %}a{{ 'b' }}c{% endfilter %}"), "A-C");
  EXPECT_EQ(render("a{% generation %}b{{ x }}{% set x = 1 %}{% endgeneration %}{{ x }}", numbers), "abouterouter");
  EXPECT_EQ(render("{% if false %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}"), "c");
  EXPECT_EQ(render("{% print 1, 'a' %}"), "1a");
}

TEST(JinjaGlobals, RangeCyclerJoinerAndDates) {
  check({{"range(3) | list, range(5, 0, -2) | list, range(4)[1]", "([0, 1, 2], [5, 3, 1], 1)"},
         {"range(2, 4), dict([('a', 1)], b=2)", "(range(2, 4), {'a': 1, 'b': 2})"}});
  EXPECT_EQ(render("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}"), "abab");
  EXPECT_EQ(render("{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", numbers), "3|1|2");
  RenderOptions options;
  options.now = [] {
    std::tm now{};
    now.tm_year = 126;
    now.tm_mon = 6;
    now.tm_mday = 4;
    now.tm_wday = 6;
    return now;
  };
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y, %A') }}{{ strftime_now('') }}", "{}", options), "04 Jul 2026, Saturday");
  EXPECT_EQ(render("{{ strftime_now('%Y') | int > 2000 }}"), "True");
}

TEST(JinjaGlobals, TheContextHidesGlobals) {
  EXPECT_EQ(render("{{ range }}", R"({"range": "mine"})"), "mine");
  Dict context;
  context.set("twice", function("twice", [](const Arguments& arguments) {
                return Value(arguments.positional.at(0).integer() * 2);
              }));
  EXPECT_EQ(Template::parse("{{ twice(21) }}{{ twice is callable }}").render(context), "42True");
}

}  // namespace
}  // namespace gristmill::jinja
