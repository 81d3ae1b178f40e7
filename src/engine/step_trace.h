#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace gristmill::engine {

/// Writes what the engine's thread does as a Chrome trace (chrome://tracing, Perfetto): one complete event per verb of
/// a step. With async scheduling the plan of step t + 1 lies inside the launch of step t. Of one thread only.
class StepTrace {
 public:
  /// An empty path writes nothing. Throws Error when the file cannot be made.
  explicit StepTrace(const std::string& path);

  class Span {
   public:
    Span(StepTrace& trace, const char* verb, uint64_t step);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    StepTrace& trace_;
    const char* verb_;
    uint64_t step_;
    double started_ = 0;
  };

 private:
  struct Close {
    void operator()(std::FILE* file) const;
  };
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace gristmill::engine
