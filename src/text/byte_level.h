#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace gristmill::text {

/// GPT-2's reversible spelling of bytes: every byte is written as one printable character, so that vocabularies and
/// merge lists are plain text without spaces (Radford et al. 2019, the released encoder). Printable bytes of Latin-1
/// stand for themselves, the other 68 follow from U+0100 on: a space is written U+0120.

/// The character that stands for `byte`.
uint32_t byte_level_character(uint8_t byte);

/// Appends the spelling of `bytes` to `out`.
void append_byte_level(std::string& out, std::string_view bytes);

/// Appends the bytes that `text` spells, or false (and nothing appended) when some character stands for no byte.
bool append_byte_level_decoded(std::string& out, std::string_view text);

}  // namespace gristmill::text
