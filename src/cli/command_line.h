#pragma once
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gristmill::cli {

/// Shows switches as --[no-]name where that is their option text, and lists as "NAME ...".
void set_help_format(CLI::App& command);

/// Parses `words` into the options of `command`. Nothing: go on. Otherwise help was printed or a one-line error, and
/// the value is the exit status (0 or 2).
std::optional<int> parse_words(CLI::App& command, const std::vector<std::string>& words);

/// Prints a usage error of `command` to stderr; returns the exit status 2.
int usage_error(const std::string& command, const std::string& why);

/// Throws Error saying what to give instead when `path` can be no model: nothing is there (it may be the name of a
/// repository, which is not downloaded), or it is a folder without config.json.
void check_model_path(const std::string& path);

}  // namespace gristmill::cli
