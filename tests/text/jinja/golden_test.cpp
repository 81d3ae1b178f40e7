#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace gristmill::jinja {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

/// The moment at which the cases were rendered: 2026-07-26 12:00, a Sunday.
std::tm moment_of_the_cases() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 12;
  now.tm_wday = 0;
  now.tm_yday = 206;
  return now;
}

/// Part of the cases was rendered with a strftime_now() that gave this text whatever the format asked for.
constexpr std::string_view fixed_date = "26 Jul 2026";

Dict context_of(const Dict& one_case) {
  Dict context = one_case.find("context")->dict();
  if (one_case.find("expected")->string().find(fixed_date) != std::string::npos) {
    context.set("strftime_now", function("strftime_now", [](const Arguments&) { return Value(fixed_date); }));
  }
  return context;
}

/// Where two texts part, for the message of a failure.
std::string difference(const std::string& expected, const std::string& actual) {
  size_t at = 0;
  while (at < expected.size() && at < actual.size() && expected[at] == actual[at]) ++at;
  const size_t from = at > 40 ? at - 40 : 0;
  return cat("at byte ", at, "\n  expected ...", expected.substr(from, 120), "\n  actual   ...",
             actual.substr(from, 120));
}

/// Empty if the case holds, else what is wrong.
std::string check(const Template& chat_template, const Dict& one_case) {
  const std::string& expected = one_case.find("expected")->string();
  const bool must_fail = one_case.find("error")->boolean();
  RenderOptions options;
  options.now = moment_of_the_cases;
  try {
    const std::string actual = chat_template.render(context_of(one_case), options);
    if (must_fail) return "did not raise: " + expected;
    return actual == expected ? "" : difference(expected, actual);
  } catch (const TemplateError& error) {
    return must_fail && error.message() == expected ? "" : error.what();
  }
}

TEST(JinjaGolden, PublishedChatTemplatesRenderAsInPython) {
  const std::filesystem::path folder = std::filesystem::path(GRISTMILL_SHARED_DATA) / "jinja";
  if (!std::filesystem::exists(folder / "cases.jsonl")) GTEST_SKIP() << "no golden cases in " << folder;
  std::map<std::string, Template> templates;
  const Value sources = parse_json(read_file(folder / "templates.json"));
  for (const auto& entry : sources.dict()) {
    try {
      templates.emplace(entry.key.string(), Template::parse(entry.value.string()));
    } catch (const TemplateError& error) {
      ADD_FAILURE() << entry.key.string() << ": " << error.what();
    }
  }
  std::istringstream lines(read_file(folder / "cases.jsonl"));
  int count = 0, held = 0;
  double seconds = 0, slowest = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Value one_case = parse_json(line);
    const std::string& name = one_case.dict().find("template")->string();
    const auto found = templates.find(name);
    if (found == templates.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    const std::string wrong = check(found->second, one_case.dict());
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    seconds += taken;
    slowest = std::max(slowest, taken);
    held += wrong.empty() ? 1 : 0;
    if (!wrong.empty()) ADD_FAILURE() << "case " << count + 1 << " of " << name << ": " << wrong;
  }
  EXPECT_EQ(held, count);
  EXPECT_GE(count, 386);
  std::cout << held << " of " << count << " cases hold; mean " << seconds / count * 1e6 << " us, slowest "
            << slowest * 1e6 << " us a render\n";
}

}  // namespace
}  // namespace gristmill::jinja
