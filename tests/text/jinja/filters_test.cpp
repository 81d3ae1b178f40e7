#include "text/jinja/jinja_test.h"

namespace gristmill::jinja {
namespace {

constexpr std::string_view people =
    R"({"p": [{"n": "bob", "a": 3, "c": "X"}, {"n": "Al", "a": 1, "c": "x"}, {"n": "carl", "a": 2, "c": "Y"}]})";

TEST(JinjaFilters, Defaults) {
  check({{"x | default('d'), '' | default('d'), '' | default('d', true), none | d('e', boolean=true)",
          "('d', '', 'd', 'e')"}});
}

TEST(JinjaFilters, Sequences) {
  check({{"[3, 1, 2] | sort, ['b', 'A'] | sort, ['b', 'A', 'a'] | sort(case_sensitive=true, reverse=true)",
          "([1, 2, 3], ['A', 'b'], ['b', 'a', 'A'])"},
         {"[1, 2, 3] | first, 'abc' | last, [] | first is defined", "(1, 'c', False)"},
         {"[1, 2] | reverse | list, 'abc' | reverse", "([2, 1], 'cba')"},
         {"['a', 'A', 'b'] | unique | list, [1, true, 2] | unique | list", "(['a', 'b'], [1, 2])"},
         {"[1, 2, 3] | batch(2, 0) | list, [1, 2, 3] | slice(2) | list", "([[1, 2], [3, 0]], [[1, 2], [3]])"},
         {"[1, 2.5] | sum, [[1], [2]] | sum(start=[]), [2, 1] | min, ['b', 'A'] | max", "(3.5, [1, 2], 1, 'b')"},
         {"[1, none, 'a'] | join('-'), {'b': 1} | join", "('1-None-a', 'b')"},
         {"{'b': 1, 'A': 2} | dictsort, {'a': 2, 'b': 1} | dictsort(by='value')",
          "([('A', 2), ('b', 1)], [('b', 1), ('a', 2)])"},
         {"{'a': 1} | items | list, x | items | list, 'ab' | list", "([('a', 1)], [], ['a', 'b'])"}});
}

TEST(JinjaFilters, SelectionByTestAndAttribute) {
  check({{"p | map(attribute='n') | list", "['bob', 'Al', 'carl']"},
         {"p | map(attribute='zz', default='-') | join", "---"},
         {"p | map(attribute='n') | map('upper') | join(',')", "BOB,AL,CARL"},
         {"p | selectattr('a', 'gt', 1) | map(attribute='n') | list", "['bob', 'carl']"},
         {"p | rejectattr('c', 'equalto', 'X') | list | length", "2"},
         {"[0, 1, 2] | select | list, [1, 2, 3] | reject('odd') | list", "([1, 2], [2])"},
         {"p | sort(attribute='c,a') | map(attribute='n') | list", "['Al', 'bob', 'carl']"},
         {"p | map(attribute='n') | sort | first, p | max(attribute='a') | string | length > 5", "('Al', True)"},
         {"[[1, 2], [3]] | map('first') | list, [[1, 2], [3]] | map(attribute=0) | list", "([1, 3], [1, 3])"}},
        people);
  EXPECT_EQ(render("{% for g in p | groupby('c') %}{{ g.grouper }}:{{ g.list | length }} {% endfor %}", people),
            "X:2 Y:1 ");
}

TEST(JinjaFilters, LazyOnesAreTrueAndCanBeWalkedOnce) {
  EXPECT_EQ(render("{% set g = [1] | select('gt', 5) %}{{ 'yes' if g else 'no' }}{{ g | list }}"), "yes[]");
  EXPECT_EQ(render("{% set g = [1] | map('string') %}{{ g | list }}{{ g | list }}"), "['1'][]");
  EXPECT_EQ(failure("{{ [1] | map('string') | length }}").message(), "object of type 'generator' has no len()");
  // Nobody asks for the item that would fail.
  EXPECT_EQ(render("{{ [1, 'a'] | map('abs') | first }}"), "1");
}

TEST(JinjaFilters, Text) {
  check({{"'aBc' | upper, 'aBc' | lower, 'aBc dE' | capitalize, 'foo-bar (baz)' | title",
          "('ABC', 'abc', 'Abc de', 'Foo-Bar (Baz)')"},
         {"' a ' | trim, 'xax' | trim('x'), 5 | trim", "('a', 'a', '5')"},
         {"'aaa' | replace('a', 'b', 2), 'ab' | center(6)", "('bba', '  ab  ')"},
         {"'%s-%d' | format('a', 2), '%(k)s' | format(k=1)", "('a-2', '1')"},
         {"'a\nb\n\nc' | indent(2), 'a\nb' | indent('> ', first=true)", "('a\\n  b\\n\\n  c', '> a\\n> b')"},
         {"'hello big wide world' | truncate(10), 'hello big' | truncate(7, true, '!', 0)", "('hello...', 'hello !')"},
         {"\"it's a-b\" | wordcount, 'a b&c' | urlencode, {'a b': 'c d'} | urlencode", "(4, 'a%20b%26c', 'a+b=c+d')"},
         {"1500000 | filesizeformat, 1024 | filesizeformat(true)", "('1.5 MB', '1.0 KiB')"}});
}

TEST(JinjaFilters, Numbers) {
  check(
      {{"'42' | int, '42.9' | int, 'x' | int(7), '0x1f' | int(0, 16), none | int, true | int", "(42, 42, 7, 31, 0, 1)"},
       {"'1.5' | float, 'x' | float(2.0), 3 | float", "(1.5, 2.0, 3.0)"},
       {"2.5 | round, 3.5 | round, 2.675 | round(2), 42.55 | round(1, 'floor'), 5 | round",
        "(2.0, 4.0, 2.67, 42.5, 5)"},
       {"1250 | round(-2), 1350 | round(-2), -3 | abs", "(1200, 1400, 3)"}});
}

TEST(JinjaFilters, ToJsonWritesAsPythonDoesWithoutEscapingHtml) {
  constexpr std::string_view context = R"({"v": {"b": [1, 2.0, null, true], "a": "<é\"\n😀>"}})";
  check({{"v | tojson", "{\"b\": [1, 2.0, null, true], \"a\": \"<é\\\"\\n😀>\"}"},
         {"v.a | tojson(ensure_ascii=true)", "\"<\\u00e9\\\"\\n\\ud83d\\ude00>\""},
         {"v | tojson(indent=1, sort_keys=true)",
          "{\n \"a\": \"<é\\\"\\n😀>\",\n \"b\": [\n  1,\n  2.0,\n  null,\n  true\n ]\n}"},
         {"v.b | tojson(separators=(',', ':'))", "[1,2.0,null,true]"},
         {"{1: none, true: 1.5} | tojson, [] | tojson(indent=2), (1, 2) | tojson", "('{\"1\": 1.5}', '[]', '[1, 2]')"}},
        context);
  EXPECT_EQ(failure("{{ x | tojson }}").message(), "Object of type Undefined is not JSON serializable");
}

TEST(JinjaFilters, MarkedTextEscapesWhatIsJoinedToIt) {
  constexpr std::string_view context = R"({"h": "<b>"})";
  check({{"h | e", "&lt;b&gt;"},
         {"h | safe", "<b>"},
         {"(h | safe) + h, h + (h | safe)", "(Markup('<b>&lt;b&gt;'), Markup('&lt;b&gt;<b>'))"},
         {"(h | safe) ~ h", "<b><b>"},
         {"('%s' | safe) % h, ('{}' | safe).format(h)", "(Markup('&lt;b&gt;'), Markup('&lt;b&gt;'))"},
         {"h | e | e, (h | safe) | upper, h is escaped", "(Markup('&lt;b&gt;'), Markup('<B>'), False)"}},
        context);
}

}  // namespace
}  // namespace gristmill::jinja
