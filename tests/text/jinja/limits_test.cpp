#include <atomic>
#include <thread>
#include <vector>

#include "text/jinja/jinja_test.h"

namespace gristmill::jinja {
namespace {

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void expect_limit(std::string_view source, const RenderOptions& options = {}) {
  const TemplateError error = failure(source, "{}", options);
  EXPECT_TRUE(error.fault() == Fault::limit && error.line() > 0) << source.substr(0, 200) << ": " << error.what();
}

TEST(JinjaLimits, StepsBoundTheWork) {
  RenderOptions options;
  options.limits.steps = 10'000;
  expect_limit("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", options);
  expect_limit("{{ range(99999) | sort | list }}", options);
  expect_limit("{% set s = 'a' * 100000 %}{% for i in range(1000) %}{{ 'b' in s }}{% endfor %}", options);
  // Two equal values that share their parts: comparing or hashing them part by part would take 2^60 steps.
  constexpr std::string_view double_up =
      "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(60) %}"
      "{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}";
  expect_limit(cat(double_up, "{{ ns.x == ns.y }}"), options);
  expect_limit(cat(double_up, "{{ {ns.x: 1} }}"), options);
  expect_limit(cat(double_up, "{{ {}[ns.x] }}"), options);
}

TEST(JinjaLimits, MemoryBoundsWhatIsBuilt) {
  for (const char* source :
       {"{{ 'x' * 10 ** 9 }}", "{{ 'xx' * 4611686018427387904 }}", "{{ 'a'.center(10 ** 18) }}",
        "{{ 'a'.zfill(9223372036854775807) }}", "{{ '%999999999d' % 1 }}", "{{ '{:.999999999f}'.format(1) }}",
        "{{ '%*d' % (10 ** 15, 1) }}", "{{ [[1]] | tojson(indent=10 ** 9) }}", "{{ 'a\nb' | indent(10 ** 9) }}",
        "{% set s = 'a' * 100000 %}{{ s | replace('a', s) }}", "{{ ('\t' * 100000).expandtabs(100000) }}",
        "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ [1] * 10 ** 15 }}", "{{ [1] | batch(10 ** 15, 0) | list }}", "{{ [1] | slice(10 ** 15) | list }}",
        "{{ range(10 ** 9) | list }}"}) {
    RenderOptions options;
    options.limits.memory_bytes = 8 << 20;
    options.limits.output_bytes = 8 << 20;
    expect_limit(source, options);
  }
}

TEST(JinjaLimits, TextOfSharedPartsIsCutOff) {
  RenderOptions options;
  options.limits.output_bytes = 1 << 16;
  constexpr std::string_view double_up =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  for (const char* use : {"{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x ~ '' }}", "{{ '%s' % (ns.x,) }}", "{{ ns }}",
                          "{{ {'k': ns.x}.items() }}", "{{ ns.x | string }}", "{{ '{!r}'.format(ns.x) }}"}) {
    expect_limit(cat(double_up, use), options);
  }
}

TEST(JinjaLimits, OutputIsBounded) {
  RenderOptions options;
  options.limits.output_bytes = 1000;
  EXPECT_EQ(render("{{ 'x' * 1000 }}", "{}", options).size(), 1000u);
  expect_limit("{{ 'x' * 1000 }}y", options);
  expect_limit("{% for i in range(999) %}{{ 'ab' }}{% endfor %}", options);
}

TEST(JinjaLimits, RangesAreBounded) {
  EXPECT_EQ(render("{{ range(100000) | length }}"), "100000");
  expect_limit("{{ range(100001) }}");
  expect_limit("{{ range(-9223372036854775807, 9223372036854775807) }}");
}

TEST(JinjaLimits, RecursionIsBounded) {
  expect_limit("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}");
  expect_limit("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  expect_limit(
      "{% macro a() %}{{ caller() }}{% endmacro %}"
      "{% macro m(n) %}{% call a() %}{{ m(n) }}{% endcall %}{% endmacro %}{{ m(1) }}");
  expect_limit("{% macro m(n) %}{% if n %}{{ m(n - 1)" + repeated(" + ''", 300) +
               " }}{% endif %}{% endmacro %}{{ m(99) }}");
  EXPECT_EQ(render("{% macro m(n) %}{% if n %}{% for i in [1] %}{{ m(n - 1) | upper ~ 'a' }}{% endfor %}{% endif %}"
                   "{% endmacro %}{{ (m(190)) | length }}"),
            "190");
}

TEST(JinjaLimits, NestedSourcesAreBounded) {
  constexpr std::pair<std::string_view, std::string_view> brackets[] = {
      {"(", ")"}, {"[", "]"}, {"{'a':", "}"}, {"f(", ")"}, {"-", ""}, {"not ", ""}, {"1 if 1 else ", ""}};
  for (const auto& [open, close] : brackets) {
    expect_limit("{{ " + repeated(open, 10'000) + "1" + repeated(close, 10'000) + " }}");
  }
  expect_limit(repeated("{% if 1 %}", 10'000));
  expect_limit(repeated("{% macro m() %}", 10'000));
  expect_limit("{{ 1" + repeated("+1", 10'000) + " }}");
  expect_limit("{{ 1" + repeated("|abs", 10'000) + " }}");
  expect_limit("{{ a" + repeated(".a", 10'000) + " }}");
  // Chains that are flat in the tree may be long.
  EXPECT_EQ(render("{{ 0" + repeated(" or 0", 10'000) + " }}"), "0");
  EXPECT_EQ(render("{{ ''" + repeated(" ~ ''", 10'000) + " }}"), "");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 10'000) + "{% endif %}"), "");
  EXPECT_EQ(render("{{ 1" + repeated("+1", 400) + " }}"), "401");
}

TEST(JinjaLimits, ValuesNestOnlySoDeep) {
  for (const char* wrap :
       {"[ns.x]", "(ns.x,)", "{'k': ns.x}", "namespace(p=ns.x)", "cycler(ns.x)", "[ns.x] | map('list')"}) {
    expect_limit(cat("{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% set ns.x = ", wrap, " %}{% endfor %}"));
  }
  expect_limit("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}");
}

TEST(JinjaLimits, LongTemplatesAreRefused) {
  ParseLimits limits;
  limits.source_bytes = 100;
  EXPECT_THROW(Template::parse(std::string(101, 'x'), limits), TemplateError);
}

TEST(JinjaLimits, CirclesOfValuesAreFreed) {
  // Nothing to see here but for the leak checker of the sanitizer build.
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = [ns] %}"
                   "{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}"
                   "{% for i in [1] recursive %}{% set ns.loop = loop %}{{ loop.changed(loop) }}{% endfor %}"
                   "{% macro c() %}{% set ns.c = caller %}{% endmacro %}{% call c() %}x{% endcall %}{{ ns.c() }}"
                   "{% for i in [1] if i %}{% set l = loop %}{% set ns.l = l %}{% endfor %}"),
            "Truex");
}

TEST(JinjaThreads, OneTemplateRendersInManyThreads) {
  const Template shared = Template::parse(
      "{% macro m(t) %}{{ t | upper }}{% endmacro %}{% set ns = namespace(n=0) %}"
      "{% for i in list %}{% set ns.n = ns.n + i %}{{ m('a' ~ i) }}{{ loop.last }}{% endfor %}{{ ns.n }}{{ text | "
      "length }}");
  const Dict context = parse_json(R"({"list": [1, 2, 3], "text": "äöü"})").dict();
  const std::string expected = shared.render(context);
  EXPECT_EQ(expected, "A1FalseA2FalseA3True63");
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) wrong += shared.render(context) == expected ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gristmill::jinja
