#pragma once
#include <span>
#include <string_view>

namespace gristmill::config {

/// A flag of vLLM's that this server does not act on.
struct KnownFlag {
  const char* name;  ///< "--tensor-parallel-size"
  bool takes_value;
  const char* allowed;  ///< values that ask for what happens anyway, separated by spaces; "*": every one; null: none
  const char* why;      ///< what to say
};

/// Nothing is ignored silently: "*" flags are accepted with a line in the log, the rest are refused by name.
std::span<const KnownFlag> known_flags();
const KnownFlag* find_known_flag(std::string_view name);

/// "--tensor-parallel-size" for "-tp"; empty for what is no short flag of vLLM's.
std::string_view long_name(std::string_view short_flag);

}  // namespace gristmill::config
