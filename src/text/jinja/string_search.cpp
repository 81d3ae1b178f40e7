#include "text/jinja/string_search.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  if (part.empty()) return from;
  const std::string_view rest = text.substr(from);
  if (rest.empty()) return text.npos;
  const void* found = part.size() == 1 ? std::memchr(rest.data(), part[0], rest.size())
                                       : memmem(rest.data(), rest.size(), part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
}

size_t find_text_right(std::string_view text, std::string_view part, Budget& budget) {
  // Searching backwards is not linear in the standard library, so the work is accounted for as it is done.
  if (part.size() > text.size()) return text.npos;
  for (size_t at = text.size() - part.size() + 1; at-- > 0;) {
    if (part.empty() || text[at] == part[0]) {
      budget.scan(part.size());
      if (text.substr(at, part.size()) == part) return at;
    }
  }
  return text.npos;
}

std::string replace_text(std::string_view text, std::string_view old_text, std::string_view new_text, int64_t count,
                         Budget& budget) {
  std::string out;
  const auto append = [&](std::string_view piece) {
    budget.text(piece.size());
    out += piece;
  };
  size_t at = 0;
  if (old_text.empty()) {  // before every character, and at the end
    for (; count != 0; --count) {
      append(new_text);
      if (at == text.size()) return out;
      const size_t start = at;
      unicode::decode(text, at);
      out += text.substr(start, at - start);
    }
    append(text.substr(at));
    return out;
  }
  for (; count != 0; --count) {
    const size_t found = find_text(text, old_text, at);
    if (found == text.npos) break;
    append(text.substr(at, found - at));
    append(new_text);
    at = found + old_text.size();
  }
  append(text.substr(at));
  return out;
}

std::string_view strip_characters(std::string_view text, std::string_view characters, bool left, bool right,
                                  Budget& budget) {
  const auto listed = [&](char32_t c) {
    budget.scan(characters.size());
    for (size_t at = 0; at < characters.size();) {
      if (unicode::decode(characters, at) == c) return true;
    }
    return false;
  };
  while (left && !text.empty()) {
    size_t next = 0;
    if (!listed(unicode::decode(text, next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    size_t before = text.size();
    if (!listed(unicode::decode_back(text, before))) break;
    text = text.substr(0, before);
  }
  return text;
}

std::vector<std::string_view> split_left(std::string_view text, std::string_view separator, size_t most) {
  std::vector<std::string_view> pieces;
  size_t at = 0;
  while (pieces.size() < most) {
    const size_t found = find_text(text, separator, at);
    if (found == text.npos) break;
    pieces.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  pieces.push_back(text.substr(at));
  return pieces;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, size_t most,
                                          Budget& budget) {
  std::vector<std::string_view> pieces;
  while (pieces.size() < most) {
    const size_t found = find_text_right(text, separator, budget);
    if (found == text.npos) break;
    pieces.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  pieces.push_back(text);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> split_space(std::string_view text, size_t most) {
  std::vector<std::string_view> pieces;
  text = unicode::strip_left(text);
  while (!text.empty() && pieces.size() < most) {
    size_t end = 0;
    for (size_t next = 0; end < text.size() && !unicode::is_space(unicode::decode(text, next)); end = next) {
    }
    pieces.push_back(text.substr(0, end));
    text = unicode::strip_left(text.substr(end));
  }
  if (!text.empty()) pieces.push_back(text);
  return pieces;
}

std::vector<std::string_view> split_space_right(std::string_view text, size_t most) {
  std::vector<std::string_view> pieces;
  text = unicode::strip_right(text);
  while (!text.empty() && pieces.size() < most) {
    size_t start = text.size();
    for (size_t next = start; start > 0 && !unicode::is_space(unicode::decode_back(text, next)); start = next) {
    }
    pieces.push_back(text.substr(start));
    text = unicode::strip_right(text.substr(0, start));
  }
  if (!text.empty()) pieces.push_back(text);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = unicode::decode(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

bool all_cased(std::string_view text, bool (*right_case)(char32_t)) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = unicode::decode(text, at);
    if (!unicode::is_cased(c)) continue;
    if (!right_case(c)) return false;
    any = true;
  }
  return any;
}

}  // namespace gristmill::jinja
