#pragma once
#include <string>
#include <vector>

namespace gristmill::cli {

/// A flag that the command acts on, as arguments are read against it.
struct FlagSpec {
  std::string name;      ///< "--port"
  bool boolean = false;  ///< has no value, and a --no- form
  bool list = false;     ///< takes one or more values
};

struct Arguments {
  std::vector<std::string> words;  ///< in the spelling of the specs, as separate words
  std::vector<std::string> notes;  ///< for the log
};

/// Brings a command line written for vLLM into plain form: underscores in names become dashes; --flag=value becomes two
/// words; --x=true and --x=false become --x and --no-x; unambiguous beginnings are completed; short flags get their
/// long names; values None and "" leave a flag unset; flags that need no action become notes. Throws Error for flags
/// that are unknown (with the nearest name) or known but not supported.
Arguments normalize(const std::vector<std::string>& words, const std::vector<FlagSpec>& specs);

}  // namespace gristmill::cli
