#pragma once
#include <cstddef>
#include <string>
#include <string_view>

/// UTF-8 text as Python's str sees it: a sequence of code points with Unicode's properties. Bytes that are not UTF-8
/// are one "code point" each, at or above `stray_byte`, and are written back as the same byte.
namespace gristmill::jinja::unicode {

inline constexpr char32_t stray_byte = 0x110000;

/// The code point at `at`, which is moved past it. `at` must be inside the text.
char32_t decode(std::string_view text, size_t& at);
/// Moves `at` back to the start of the code point before it and returns that. `at` must not be 0.
char32_t decode_back(std::string_view text, size_t& at);
void append(std::string& out, char32_t code_point);
size_t count(std::string_view text);
/// The byte offset of code point `index`, or the size of the text if it has fewer.
size_t offset_of(std::string_view text, size_t index);

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_alphabetic(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alphanumeric(char32_t c);
bool is_uppercase(char32_t c);
bool is_lowercase(char32_t c);
/// Upper, lower or title case.
bool is_cased(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// First character in title case, the rest in lower case.
std::string capitalize(std::string_view text);
/// Every run of cased characters capitalized (str.title).
std::string title(std::string_view text);
std::string swap_case(std::string_view text);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace gristmill::jinja::unicode
