#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::config {

/// The candidate closest to `word` by edits, if any is close enough to be a misspelling; empty otherwise.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace gristmill::config
