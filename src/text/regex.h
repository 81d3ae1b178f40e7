#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace gristmill::text {

/// A compiled regular expression over UTF-8 with Unicode classes, on PCRE2: just-in-time compiled where the system
/// allows that, interpreted otherwise. Immutable and thread safe; every thread has its own match data and JIT stack.
///
/// Two things follow the Oniguruma rules of published tokenizers where PCRE2's differ: \s is exactly White_Space (PCRE2
/// adds U+180E), and class intersections (&&) are refused instead of read as ampersands.
class Regex {
 public:
  enum class Engine { best, interpreter };

  /// Throws Error quoting `pattern` and the place of the mistake.
  explicit Regex(std::string_view pattern, Engine engine = Engine::best);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  struct Match {
    size_t begin, end;
  };
  /// The first non-empty match at or behind `from`. `subject` is valid UTF-8, and lookarounds see nothing outside it.
  /// Throws RequestError when matching takes more steps than the limit.
  bool find(std::string_view subject, size_t from, Match& match) const;
  bool jit_compiled() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::text
