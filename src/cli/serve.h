#pragma once
#include <string>
#include <vector>

namespace gristmill::cli {

/// `gristmill serve`: `words` are the arguments behind the command's name. Returns the exit status: 2 for a wrong
/// command line, 1 for a configuration or model that cannot be served.
int serve(const std::vector<std::string>& words);

}  // namespace gristmill::cli
