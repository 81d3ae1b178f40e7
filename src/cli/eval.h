#pragma once
#include <string>
#include <vector>

namespace gristmill::cli {

/// `gristmill eval`: measures of a model's quality. `words` are the arguments behind the command's name. Returns the
/// exit status; 2 for a wrong command line. Throws Error when the model or the file cannot be used.
int eval(const std::vector<std::string>& words);

}  // namespace gristmill::cli
