#include "text/jinja/jinja_test.h"

namespace gristmill::jinja {
namespace {

TEST(JinjaExpressions, LiteralsPrintAsPythonPrintsThem) {
  check({{"1_000", "1000"},
         {"0x1f ~ ' ' ~ 0b101 ~ ' ' ~ 0o17", "31 5 15"},
         {"1.0", "1.0"},
         {"1e3", "1000.0"},
         {"1e16", "1e+16"},
         {"0.00001", "1e-05"},
         {"123456789.125", "123456789.125"},
         {"none", "None"},
         {"[true, False, None, 1.5]", "[True, False, None, 1.5]"},
         {"(1,)", "(1,)"},
         {"()", "()"},
         {"1, 2", "(1, 2)"},
         {"{'a': 1, 'b': [2]}", "{'a': 1, 'b': [2]}"},
         {"{1: 'int', 1.0: 'float', true: 'bool'}", "{1: 'bool'}"},
         {"'a' \"b\" 'c'", "abc"},
         {R"('\x41\u00e9\101\n\q')", "A\u00e9A\n\\q"}});
}

TEST(JinjaExpressions, StringsInsideContainersAreQuotedAsByRepr) {
  check({{R"(["it's"])", R"(["it's"])"},
         {R"(['say "x"'])", R"(['say "x"'])"},
         {R"(['both \' and "'])", R"(['both \' and "'])"},
         {R"(['\n\t\\\x00\x7f\u00a0\u200b'])", R"(['\n\t\\\x00\x7f\xa0\u200b'])"},
         {"['\u00e9 \u4f60 \U0001F600']", "['\u00e9 \u4f60 \U0001F600']"}});
}

TEST(JinjaExpressions, ArithmeticFollowsPython) {
  check({{"7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3", "(3, -4, 1, 2, -2)"},
         {"7.5 // 2, -7.5 % 2", "(3.0, 0.5)"},
         {"4 / 2, 1 / 2", "(2.0, 0.5)"},
         {"2 ** 3 ** 2", "64"},  // left to right, unlike Python itself
         {"2 ** -1", "0.5"},
         {"-2 ** 2", "4"},
         {"true + true", "2"},
         {"'a' * 3 ~ [1] * 2", "aaa[1, 1]"},
         {"[1] + [2], (1,) + (2,)", "([1, 2], (1, 2))"},
         {"0.1 + 0.2", "0.30000000000000004"},
         {"-1 | abs", "1"}});
  EXPECT_EQ(failure("{{ 'a' + 1 }}").message(), "can only concatenate str (not \"int\") to str");
  EXPECT_EQ(failure("{{ 1 + 'a' }}").message(), "unsupported operand type(s) for +: 'int' and 'str'");
  EXPECT_EQ(failure("{{ 1 / 0 }}").message(), "division by zero");
}

TEST(JinjaExpressions, IntegersBeyond64BitsAreRefusedNotWrapped) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 63 }}", "{{ 4294967296 * 4294967296 }}",
        "{{ -(-9223372036854775807 - 1) }}", "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 9223372036854775808 }}",
        "{{ 9223372036854775807 | round(-1) }}", "{{ 1e300 | int }}"}) {
    EXPECT_NE(failure(source).message().find("64"), std::string::npos) << source;
  }
}

TEST(JinjaExpressions, TildeBindsTighterThanPlusAndJoinsTexts) {
  check(
      {{"1 ~ none ~ [1, 'a'] ~ true", "1None[1, 'a']True"}, {"2 * 3 ~ 4", "64"}, {"'a' ~ undefined_name ~ 'b'", "ab"}});
  EXPECT_EQ(failure("{{ 1 ~ 2 + 3 }}").message(), "can only concatenate str (not \"int\") to str");
}

TEST(JinjaExpressions, ComparisonsChainAndTestMembership) {
  check({{"1 < 2 < 3, 1 < 3 < 2, 3 > 2 >= 2", "(True, False, True)"},
         {"1 == 1.0 == true", "True"},
         {"'a' in 'abc', 'x' not in 'abc', 2 in [1, 2], 'k' in {'k': 0}", "(True, True, True, True)"},
         {"not 1 in [1]", "False"},
         {"[1, 2] == [1, 2.0], (1, 2) == [1, 2]", "(True, False)"},
         {"'Z' < 'a', [1] < [1, 0]", "(True, True)"},
         {"9007199254740993 == 9007199254740992.0", "False"}});
  EXPECT_EQ(failure("{{ 1 < 'a' }}").message(), "'<' not supported between instances of 'int' and 'str'");
  EXPECT_EQ(failure("{{ 1 in 'abc' }}").message(), "'in <string>' requires string as left operand, not int");
}

TEST(JinjaExpressions, LogicGivesOperandsAndStopsEarly) {
  check({{"0 or 'x', '' and 1, 1 and 2", "('x', '', 2)"},
         {"true or undefined_name.attribute", "True"},
         {"'a' if false else 'b' if false else 'c'", "c"},
         {"'a' if false", ""},
         {"('a' if false) is defined", "False"}});
}

TEST(JinjaExpressions, IndexesAndSlicesCountCodePoints) {
  constexpr std::string_view context = R"({"u": "äö你😀", "l": [1, 2, 3, 4]})";
  check({{"u[0], u[-1], u[2], u | length", "('ä', '😀', '你', 4)"},
         {"u[1:3], u[::-1], u[3:0:-2], u[10:]", "('ö你', '😀你öä', '😀ö', '')"},
         {"l[-2:], l[:-1], l[::2], l[::-1], l[5:1:-2]", "([3, 4], [1, 2, 3], [1, 3], [4, 3, 2, 1], [4])"},
         {"(1, 2, 3)[1:]", "(2, 3)"},
         {"l[9] is defined, l['x'] is defined, l.1", "(False, False, 2)"}},
        context);
  EXPECT_EQ(failure("{{ [1][::0] }}").message(), "slice step cannot be zero");
  EXPECT_EQ(failure("{{ none[1:] }}").message(), "'NoneType' object is not subscriptable");
}

TEST(JinjaExpressions, DotsPreferMethodsAndBracketsPreferItems) {
  constexpr std::string_view context = R"({"d": {"items": 1, "a": 2, "_p": 3, "update": 4}})";
  check({{"d.a, d['a'], d._p", "(2, 2, 3)"},
         {"d['items']", "1"},
         {"d.items() | list | first", "('items', 1)"},
         {"d.missing, d['missing']", "(Undefined, Undefined)"},
         {"d.update is defined, d['update']", "(False, 4)"}},
        context);
}

TEST(JinjaExpressions, UndefinedPrintsNothingButCannotBeUsed) {
  check({{"x", ""}, {"x is defined", "False"}, {"x | default('d')", "d"}, {"x | length", "0"}, {"x == y", "True"}});
  EXPECT_EQ(failure("{{ x.y }}").message(), "'x' is undefined");
  EXPECT_EQ(failure("{{ x + 1 }}").message(), "'x' is undefined");
  EXPECT_EQ(failure("{{ x() }}").message(), "'x' is undefined");
  EXPECT_EQ(failure("{{ x < 1 }}").message(), "'x' is undefined");
  EXPECT_EQ(failure("{{ d.a.b }}", R"({"d": {}})").message(), "'dict object' has no attribute 'a'");
  EXPECT_EQ(failure("{{ l[3].b }}", R"({"l": []})").message(), "list object has no element 3");
  EXPECT_EQ(failure("{{ none.a.b }}").message(), "'None' has no attribute 'a'");
}

TEST(JinjaExpressions, CallsTakeNamedAndSpreadArguments) {
  check({{"dict(a=1, **{'b': 2})", "{'a': 1, 'b': 2}"},
         {"'-'.join(*[['a', 'b']])", "a-b"},
         {"'a,b,c'.split(sep=',', maxsplit=1)", "['a', 'b,c']"}});
  EXPECT_EQ(failure("{{ 'a'.upper(1) }}").fault(), Fault::runtime);
  EXPECT_EQ(failure("{{ 'a'() }}").message(), "'str' object is not callable");
}

TEST(JinjaExpressions, TestsOfTypesFollowPython) {
  check({{"1 is integer, true is integer, true is number, 1.0 is float", "(True, False, True, True)"},
         {"'a' is string, 'a' is iterable, 'a' is sequence, 'a' is mapping", "(True, True, True, False)"},
         {"{} is mapping, {} is sequence, {}.items() is sequence, 1 is iterable", "(True, True, False, False)"},
         {"none is none, x is none, none is undefined", "(True, False, False)"},
         {"3 is odd, 4 is divisibleby 2, 'A' is upper, 5 is in [5], 5 is not eq 4", "(True, True, True, True, True)"},
         {"true is true, 1 is true, false is false, range is callable", "(True, False, True, True)"},
         {"'upper' is filter, 'nope' is filter, 'odd' is test", "(True, False, True)"}});
}

TEST(JinjaExpressions, TheSandboxHidesInternalsAndKeepsValuesAsTheyAre) {
  constexpr std::string_view context = R"({"l": [1], "d": {}})";
  EXPECT_EQ(failure("{{ l.append(2) }}", context).message(), "access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(failure("{{ d.update({}) }}", context).fault(), Fault::runtime);
  EXPECT_EQ(failure("{{ ''.__class__.__mro__ }}", context).fault(), Fault::runtime);
  check({{"''.__class__ is defined, ''['__class__'] is defined, l.pop is defined", "(False, False, False)"},
         {"'{0.__class__}'.format('a')", ""}},
        context);
}

}  // namespace
}  // namespace gristmill::jinja
