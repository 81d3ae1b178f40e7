#include "engine/step_trace.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace gristmill::engine {
namespace {

double microseconds_now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepTrace::StepTrace(const std::string& path) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "we"));
  if (file_ == nullptr) throw Error(cat("--step-trace ", path, ": ", std::strerror(errno)));
  std::fputs("[\n", file_.get());
}

void StepTrace::Close::operator()(std::FILE* file) const {
  // After a crash the bracket is missing, which the format allows.
  std::fputs("{}]\n", file);
  std::fclose(file);
}

StepTrace::Span::Span(StepTrace& trace, const char* verb, uint64_t step) : trace_(trace), verb_(verb), step_(step) {
  if (trace_.file_ != nullptr) started_ = microseconds_now();
}

StepTrace::Span::~Span() {
  if (trace_.file_ == nullptr) return;
  std::fprintf(
      trace_.file_.get(),
      "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":%.1f,\"dur\":%.1f,\"args\":{\"step\":%llu}},\n", verb_,
      started_, microseconds_now() - started_, static_cast<unsigned long long>(step_));
}

}  // namespace gristmill::engine
