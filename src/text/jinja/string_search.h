#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/limits.h"

/// Searching, splitting and stripping, shared by string methods and filters. Offsets are in bytes.
namespace gristmill::jinja {

/// In linear time, whatever the texts are. npos if absent.
size_t find_text(std::string_view text, std::string_view part, size_t from);
size_t find_text_right(std::string_view text, std::string_view part, Budget& budget);
/// `count` < 0 replaces all.
std::string replace_text(std::string_view text, std::string_view old_text, std::string_view new_text, int64_t count,
                         Budget& budget);
std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right,
                                  Budget& budget);

// str.split and str.rsplit with at most `most` cuts.
std::vector<std::string_view> split_left(std::string_view text, std::string_view separator, size_t most);
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, size_t most,
                                          Budget& budget);
std::vector<std::string_view> split_space(std::string_view text, size_t most);
std::vector<std::string_view> split_space_right(std::string_view text, size_t most);
/// str.splitlines: at every line boundary that Unicode knows.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// Some cased characters, and all of them pass.
bool all_cased(std::string_view text, bool (*right_case)(char32_t));

}  // namespace gristmill::jinja
