#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "text/utf8.h"

namespace gristmill::text {
namespace {

// Ranges of characters with NFC_Quick_Check=Yes and combining class 0 that cover most text.
bool inert(uint32_t c) {
  if (c < 0x300) return true;
  if (c >= 0x3400)
    return c <= 0x9FFF || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xFF01 && c <= 0xFFEE) ||
           (c >= 0x1F000 && c <= 0x1FAFF);
  static constexpr struct {
    uint32_t first, last;
  } kRanges[] = {{0x388, 0x482},   {0x48A, 0x52F},   {0x5D0, 0x5EA},   {0x621, 0x64A},   {0x660, 0x66F},
                 {0x671, 0x6D3},   {0x904, 0x939},   {0x964, 0x977},   {0xE01, 0xE37},   {0xE3F, 0xE47},
                 {0x1E00, 0x1EFF}, {0x2010, 0x2027}, {0x2190, 0x21FF}, {0x2500, 0x2ADB}, {0x2ADD, 0x2BFF},
                 {0x3000, 0x3029}, {0x3041, 0x3096}, {0x30A1, 0x30FA}};
  for (const auto& range : kRanges)
    if (c <= range.last) return c >= range.first;
  return false;
}

void append_nfc(std::string_view text, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) throw Error(cat("text cannot be normalized: ", utf8proc_errmsg(size)));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
  std::free(result);
}

/// Only the stretches that may change are normalized: from the last inert character before the others, which they may
/// combine with, to the next inert one, which combines with nothing before it (Unicode annex 15, section 9.1).
void nfc(std::string_view text, std::string& out) {
  out.clear();
  out.reserve(text.size());
  size_t done = 0, last = 0;  // what lies before `done` is out; the last character begins at `last`
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      last = at++;
      continue;
    }
    if (inert(next_code_point(text, at))) {
      last = begin;
      continue;
    }
    while (at < text.size()) {
      size_t end = at;
      if (inert(next_code_point(text, end))) break;
      at = end;
    }
    const size_t from = std::max(done, last);
    out.append(text, done, from - done);
    append_nfc(text.substr(from, at - from), out);
    done = last = at;
  }
  out.append(text, done);
}

}  // namespace

bool quick_check_nfc(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0xCC) {  // below U+0300, also in the middle of such a character
      ++at;
    } else if (!inert(next_code_point(text, at))) {
      return false;
    }
  }
  return true;
}

void Normalizer::add_nfc() {
  steps_.push_back({Kind::nfc, "", ""});
}
void Normalizer::add_replace(std::string from, std::string to) {
  steps_.push_back({Kind::replace, std::move(from), std::move(to)});
}
void Normalizer::add_prepend(std::string prefix) {
  steps_.push_back({Kind::prepend, "", std::move(prefix)});
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  std::string result;
  for (const Step& step : steps_) {
    if (text.empty()) return text;
    switch (step.kind) {
      case Kind::nfc:
        if (quick_check_nfc(text)) continue;
        nfc(text, result);
        break;
      case Kind::replace: {
        size_t found = text.find(step.from);
        if (found == std::string_view::npos) continue;
        result.clear();
        size_t from = 0;
        for (; found != std::string_view::npos; found = text.find(step.from, from)) {
          result.append(text, from, found - from);
          result.append(step.to);
          from = found + step.from.size();
        }
        result.append(text, from);
        break;
      }
      case Kind::prepend:
        result = step.to;
        result.append(text);
        break;
    }
    storage.swap(result);  // `text` may lie in what `result` now holds; it is not read any more
    text = storage;
  }
  return text;
}

}  // namespace gristmill::text
