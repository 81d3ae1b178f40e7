#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "config/serve_config.h"

namespace CLI {
class App;
}

namespace gristmill::cli {

/// The flags of `gristmill serve`: declared on a command, then read into a configuration.
class ServeFlags {
 public:
  /// `command` must outlive it. Reading a wrong value throws Error naming the flag.
  explicit ServeFlags(CLI::App& command);
  ~ServeFlags();
  ServeFlags(const ServeFlags&) = delete;
  ServeFlags& operator=(const ServeFlags&) = delete;

  std::vector<FlagSpec> specs() const;
  /// After parsing.
  config::ServeConfig& config();
  /// How flags were understood, for the log.
  const std::vector<std::string>& notes() const;
  const std::string& log_level() const;  ///< empty: not given
  /// What was given, as {'port': '8001', ...}, for the log; keys are not shown.
  std::string given() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::cli
