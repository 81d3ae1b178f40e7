#pragma once
#include <string>
#include <vector>

namespace gristmill::cli {

/// `gristmill quantize SRC DST`. Returns the exit status.
int quantize(const std::vector<std::string>& words);

}  // namespace gristmill::cli
