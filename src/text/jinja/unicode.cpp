#include "text/jinja/unicode.h"

#include <algorithm>
#include <span>

#include "text/jinja/unicode_tables.h"

namespace gristmill::jinja::unicode {
namespace {

template <class R>
const R* find_run(std::span<const R> runs, char32_t c) {
  auto after = std::upper_bound(runs.begin(), runs.end(), c, [](char32_t v, const R& run) { return v < run.first; });
  if (after == runs.begin()) return nullptr;
  const R& run = *std::prev(after);
  return c <= run.last && (c - run.first) % run.stride == 0 ? &run : nullptr;
}

bool in(const Run* runs, size_t count, char32_t c) {
  return find_run(std::span(runs, count), c) != nullptr;
}

const CaseException* find_exception(const CaseException* table, size_t count, char32_t c) {
  const CaseException* end = table + count;
  const CaseException* found =
      std::lower_bound(table, end, c, [](const CaseException& e, char32_t v) { return e.from < v; });
  return found != end && found->from == c ? found : nullptr;
}

void append_exception(std::string& out, const CaseException& exception) {
  for (char32_t c : exception.to) {
    if (c != 0) append(out, c);
  }
}

char32_t map_case(const CaseRun* runs, size_t count, char32_t c) {
  const CaseRun* run = find_run(std::span(runs, count), c);
  return run ? static_cast<char32_t>(static_cast<int32_t>(c) + run->delta) : c;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const CaseException* exception = find_exception(upper_exceptions, upper_exceptions_count, c)) {
    append_exception(out, *exception);
  } else {
    append(out, map_case(to_upper, to_upper_count, c));
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (const CaseException* exception = find_exception(lower_exceptions, lower_exceptions_count, c)) {
    append_exception(out, *exception);
  } else {
    append(out, map_case(to_lower, to_lower_count, c));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const CaseException* exception = find_exception(title_exceptions, title_exceptions_count, c)) {
    append_exception(out, *exception);
  } else {
    append(out, map_case(to_upper, to_upper_count, c));
  }
}

/// Lower case of the character that ends at `at`. A capital sigma at the end of a word has a form of its own
/// (Unicode's Final_Sigma, without the case-ignorable characters it may skip).
void append_lower_in(std::string& out, std::string_view text, size_t at, char32_t c) {
  constexpr char32_t capital_sigma = 0x3a3, final_sigma = 0x3c2;
  if (c == capital_sigma) {
    size_t before = at;
    decode_back(text, before);
    bool after_letter = before > 0 && is_cased(decode_back(text, before));
    bool before_letter = at < text.size() && is_cased(decode(text, at));
    if (after_letter && !before_letter) return append(out, final_sigma);
  }
  append_lower(out, c);
}

}  // namespace

char32_t decode(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead >= 0xc2 && lead <= 0xf4 && at + length <= text.size()) {
    char32_t c = lead & (0xff >> (length + 1));
    size_t i = 1;
    for (; i < length && (byte(at + i) & 0xc0) == 0x80; ++i) c = (c << 6) | (byte(at + i) & 0x3f);
    const char32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    if (i == length && c >= least && c < 0x110000 && (c < 0xd800 || c > 0xdfff)) {
      at += length;
      return c;
    }
  }
  ++at;
  return stray_byte + lead;
}

char32_t decode_back(std::string_view text, size_t& at) {
  // A sequence has at most four bytes; take the longest one that ends here.
  for (size_t length = std::min<size_t>(4, at); length > 1; --length) {
    size_t end = at - length;
    const char32_t c = decode(text.substr(0, at), end);
    if (end == at) {
      at -= length;
      return c;
    }
  }
  size_t start = --at;
  return decode(text.substr(0, at + 1), start);
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < stray_byte) {
    out += static_cast<char>(0xf0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(c - stray_byte);
  }
}

size_t count(std::string_view text) {
  size_t points = 0;
  for (size_t at = 0; at < text.size(); ++points) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else {
      decode(text, at);
    }
  }
  return points;
}

size_t offset_of(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) decode(text, at);
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  return c < stray_byte && !(c >= 0xd800 && c <= 0xdfff) && !in(unprintable, unprintable_count, c);
}
bool is_alphabetic(char32_t c) {
  return in(alphabetic, alphabetic_count, c);
}
bool is_decimal(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : in(decimal, decimal_count, c);
}
bool is_digit(char32_t c) {
  return is_decimal(c) || in(digit, digit_count, c);
}
bool is_numeric(char32_t c) {
  return is_digit(c) || in(numeric, numeric_count, c);
}
bool is_alphanumeric(char32_t c) {
  return is_alphabetic(c) || is_numeric(c);
}
bool is_uppercase(char32_t c) {
  return in(uppercase, uppercase_count, c);
}
bool is_lowercase(char32_t c) {
  return in(lowercase, lowercase_count, c);
}

bool is_cased(char32_t c) {
  // Title case letters are the digraphs, and Greek capitals with iota.
  const bool title_case = c == 0x1c5 || c == 0x1c8 || c == 0x1cb || c == 0x1f2 || (c >= 0x1f88 && c <= 0x1f8f) ||
                          (c >= 0x1f98 && c <= 0x1f9f) || (c >= 0x1fa8 && c <= 0x1faf) || c == 0x1fbc || c == 0x1fcc ||
                          c == 0x1ffc;
  return is_uppercase(c) || is_lowercase(c) || title_case;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(out, decode(text, at));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = decode(text, at);
    append_lower_in(out, text, at, c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t c = decode(text, at);
    if (first) {
      append_title(out, c);
    } else {
      append_lower_in(out, text, at, c);
    }
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = decode(text, at);
    if (in_word) {
      append_lower_in(out, text, at, c);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = decode(text, at);
    if (is_uppercase(c)) {
      append_lower_in(out, text, at, c);
    } else if (is_lowercase(c)) {
      append_upper(out, c);
    } else {
      append(out, c);
    }
  }
  return out;
}

std::string_view strip_left(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(decode(text, next))) break;
    at = next;
  }
  return text.substr(at);
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t before = end;
    if (!is_space(decode_back(text, before))) break;
    end = before;
  }
  return text.substr(0, end);
}

}  // namespace gristmill::jinja::unicode
