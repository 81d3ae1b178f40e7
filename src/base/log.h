#pragma once
#include <string_view>

#include "base/error.h"

namespace gristmill {

enum class LogLevel : int { debug, info, warning, error };

/// Lines below this level are dropped. Set once at start (VLLM_LOGGING_LEVEL, --log-level); thread safe.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Text put before every line of this process, e.g. "(EngineCore pid=7) ". Set once at start.
void set_log_prefix(std::string_view prefix);

/// Writes one line to stderr in vLLM's format, which dashboards and scripts read:
/// `LEVEL MM-DD HH:MM:SS [file:line] text`. One write call a line, so that lines of several threads never mix.
void log_line(LogLevel level, const char* file, int line, std::string_view text);

}  // namespace gristmill

#define GRISTMILL_LOG(level, ...)                                                        \
  do {                                                                                   \
    if ((level) >= ::gristmill::log_level())                                             \
      ::gristmill::log_line((level), __FILE__, __LINE__, ::gristmill::cat(__VA_ARGS__)); \
  } while (false)
#define LOG_DEBUG(...) GRISTMILL_LOG(::gristmill::LogLevel::debug, __VA_ARGS__)
#define LOG_INFO(...) GRISTMILL_LOG(::gristmill::LogLevel::info, __VA_ARGS__)
#define LOG_WARNING(...) GRISTMILL_LOG(::gristmill::LogLevel::warning, __VA_ARGS__)
#define LOG_ERROR(...) GRISTMILL_LOG(::gristmill::LogLevel::error, __VA_ARGS__)
