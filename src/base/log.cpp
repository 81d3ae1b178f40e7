#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

namespace gristmill {
namespace {

std::atomic<LogLevel> threshold{LogLevel::info};

std::string& prefix() {
  static std::string text;
  return text;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "DEBUG";
    case LogLevel::info:
      return "INFO";
    case LogLevel::warning:
      return "WARNING";
    case LogLevel::error:
      return "ERROR";
  }
  return "?";
}

}  // namespace

void set_log_level(LogLevel level) {
  threshold.store(level, std::memory_order_relaxed);
}

LogLevel log_level() {
  return threshold.load(std::memory_order_relaxed);
}

void set_log_prefix(std::string_view text) {
  prefix() = text;
}

void log_line(LogLevel level, const char* file, int line, std::string_view text) {
  const char* slash = std::strrchr(file, '/');
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char head[96];
  std::snprintf(head, sizeof head, "%s %02d-%02d %02d:%02d:%02d [%s:%d] ", level_name(level), local.tm_mon + 1,
                local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, slash ? slash + 1 : file, line);
  std::string out = prefix();
  out += head;
  out += text;
  out += '\n';
  for (size_t done = 0; done < out.size();) {
    const ssize_t wrote = ::write(STDERR_FILENO, out.data() + done, out.size() - done);
    if (wrote <= 0) return;  // nobody reads the log any more: nothing better to do
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace gristmill
