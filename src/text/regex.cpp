#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace gristmill::text {
namespace {

// A match of the known patterns takes a handful of steps per character it looks at; the limit stops patterns that
// explode on hostile text.
constexpr uint32_t match_limit = 50'000'000;
constexpr uint32_t heap_limit_kib = 256 * 1024;
constexpr size_t jit_stack_start = 32 * 1024;
constexpr size_t jit_stack_limit = 4 * 1024 * 1024;

struct MatchResources {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(jit_stack_start, jit_stack_limit, nullptr);

  MatchResources() {
    if (data == nullptr || context == nullptr) throw Error("out of memory for regular expression matching");
    pcre2_set_match_limit(context, match_limit);
    pcre2_set_heap_limit(context, heap_limit_kib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchResources() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchResources(const MatchResources&) = delete;
  MatchResources& operator=(const MatchResources&) = delete;
};

MatchResources& resources_of_this_thread() {
  thread_local MatchResources resources;
  return resources;
}

std::string message_of(int code) {
  PCRE2_UCHAR buffer[160];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return cat("error ", code);
  return reinterpret_cast<const char*>(buffer);
}

// White_Space without U+180E, as items of a character class.
constexpr std::string_view white_space =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Spells out \s and \S, and \uXXXX as \x{XXXX}.
std::string translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[i + 1];
      if (escaped == 's') {
        out += in_class ? std::string(white_space) : cat('[', white_space, ']');
      } else if (escaped == 'S' && !in_class) {
        out += cat("[^", white_space, ']');
      } else if (escaped == 'S') {
        throw Error(cat("regular expression \"", pattern, "\": \\S inside a class is not supported"));
      } else if (escaped == 'u' && i + 5 < pattern.size()) {
        out += cat("\\x{", pattern.substr(i + 2, 4), '}');
        i += 4;
      } else {
        out.append(pattern, i, 2);
      }
      ++i;
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (pattern.substr(i + 1, 1) == "^") out += pattern[++i];
      if (pattern.substr(i + 1, 1) == "]") out += pattern[++i];
      continue;
    }
    if (!in_class) {
      out += c;
      continue;
    }
    if (c == ']') in_class = false;
    if (c == '&' && pattern.substr(i, 2) == "&&") {
      throw Error(cat("regular expression \"", pattern, "\": class intersections (&&) are not supported"));
    }
    if (c == '[' && pattern.substr(i + 1, 1) != ":") {
      throw Error(cat("regular expression \"", pattern, "\": nested classes are not supported"));
    }
    out += c;
  }
  return out;
}

}  // namespace

struct Regex::Impl {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, Engine engine) : impl_(std::make_unique<Impl>()) {
  const std::string source = translate(pattern);
  int code = 0;
  PCRE2_SIZE offset = 0;
  impl_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_UTF | PCRE2_UCP, &code,
                              &offset, nullptr);
  if (impl_->code == nullptr) {
    throw Error(cat("regular expression \"", pattern, "\": ", message_of(code), " (near byte ", offset, ")"));
  }
  impl_->jit = engine == Engine::best && pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::jit_compiled() const {
  return impl_->jit;
}

bool Regex::find(std::string_view subject, size_t from, Match& match) const {
  MatchResources& resources = resources_of_this_thread();
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  while (from < subject.size()) {
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (impl_->jit && resources.stack != nullptr) {
      found = pcre2_jit_match(impl_->code, text, subject.size(), from, 0, resources.data, resources.context);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(impl_->code, text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, resources.data,
                          resources.context);
    }
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      throw RequestError("", cat("the text cannot be split into words: ", message_of(found), " at byte ", from));
    }
    const PCRE2_SIZE* vector = pcre2_get_ovector_pointer(resources.data);
    match = {vector[0], vector[1]};
    if (match.end > match.begin) return true;
    // An empty match: step over one character.
    from = match.end + 1;
    while (from < subject.size() && (static_cast<unsigned char>(subject[from]) & 0xC0) == 0x80) ++from;
  }
  return false;
}

}  // namespace gristmill::text
