#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gristmill::text {

/// Offset of the first byte that is not part of a well-formed UTF-8 sequence (no overlong forms, no surrogates, nothing
/// above U+10FFFF), or `npos` when all of `text` is valid.
size_t find_invalid_utf8(std::string_view text);

/// Decodes the character at `at` of valid UTF-8 and moves `at` behind it.
uint32_t next_code_point(std::string_view text, size_t& at);

/// Appends `code_point` (a Unicode scalar value) to `out`.
void append_utf8(std::string& out, uint32_t code_point);

/// Appends the text of `bytes` to `out`. Bytes that can never become a character give one U+FFFD for each maximal
/// subpart of an ill-formed sequence (Unicode 15, section 3.9; WHATWG and Python's "replace" do the same). A sequence
/// that the end of `bytes` cuts short is left alone. Returns how many bytes were used: all but those of that sequence.
size_t append_decoded(std::string& out, std::string_view bytes);

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

}  // namespace gristmill::text
