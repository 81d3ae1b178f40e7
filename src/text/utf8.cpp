#include "text/utf8.h"

#include <cstring>

namespace gristmill::text {
namespace {

enum class Outcome { complete, cut_short, ill_formed };

struct Sequence {
  Outcome outcome;
  size_t length;  // bytes of the character, or of the maximal subpart
};

// Table 3-7 of the Unicode standard: the lead byte fixes the length and the range of the second byte.
Sequence scan(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Outcome::complete, 1};
  size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Outcome::ill_formed, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (at + i >= bytes.size()) return {Outcome::cut_short, i};
    if (byte(i) < low || byte(i) > high) return {Outcome::ill_formed, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Outcome::complete, length};
}

// Length of the ASCII run at `at`, eight bytes a step.
size_t ascii_run(std::string_view bytes, size_t at) {
  const size_t begin = at;
  while (at + 8 <= bytes.size()) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < bytes.size() && static_cast<uint8_t>(bytes[at]) < 0x80) ++at;
  return at - begin;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (true) {
    at += ascii_run(text, at);
    if (at >= text.size()) return std::string_view::npos;
    const Sequence next = scan(text, at);
    if (next.outcome != Outcome::complete) return at;
    at += next.length;
  }
}

uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  const uint32_t lead = byte(0);
  uint32_t value;
  if (lead < 0x80) {
    value = lead;
    at += 1;
  } else if (lead < 0xE0) {
    value = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    at += 2;
  } else if (lead < 0xF0) {
    value = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    at += 3;
  } else {
    value = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    at += 4;
  }
  return value;
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t append_decoded(std::string& out, std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t ascii = ascii_run(bytes, at);
    out.append(bytes, at, ascii);
    at += ascii;
    if (at == bytes.size()) break;
    const Sequence next = scan(bytes, at);
    if (next.outcome == Outcome::cut_short) break;
    if (next.outcome == Outcome::complete) {
      out.append(bytes, at, next.length);
    } else {
      out.append(replacement_character);
    }
    at += next.length;
  }
  return at;
}

}  // namespace gristmill::text
