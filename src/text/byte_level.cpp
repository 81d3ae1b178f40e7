#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace gristmill::text {
namespace {

constexpr uint32_t first_extra = 0x100;
constexpr uint32_t characters = first_extra + 68;

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, characters> byte{};
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& byte : tables.byte) byte = -1;
  uint32_t extra = first_extra;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t character = stands_for_itself(byte) ? byte : extra++;
    tables.character[byte] = static_cast<uint16_t>(character);
    tables.byte[character] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables tables = make_tables();

}  // namespace

uint32_t byte_level_character(uint8_t byte) {
  return tables.character[byte];
}

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, tables.character[static_cast<uint8_t>(byte)]);
}

bool append_byte_level_decoded(std::string& out, std::string_view text) {
  const size_t before = out.size();
  // All characters in use lie below U+0144: one or two bytes of UTF-8.
  for (size_t at = 0; at < text.size();) {
    uint32_t character = static_cast<uint8_t>(text[at++]);
    if (character >= 0xC0 && character < 0xE0 && at < text.size()) {
      character = (character & 0x1F) << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
    } else if (character >= 0x80) {
      character = characters;
    }
    if (character >= characters || tables.byte[character] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(tables.byte[character]));
  }
  return true;
}

}  // namespace gristmill::text
