#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace gristmill::text {

/// Where a text can be cut so that the pieces are merged one by one, with the same result: between two characters that
/// no merge ever brings together. A merge joins two symbols; it can cross the border of two characters only where one
/// symbol ends with the first (or, in byte-level vocabularies, is its last bytes) and the other begins with the second
/// (or is its first bytes). So the pairs of touching ends of all merges tell. Pieces are short and repeat, and long
/// texts without spaces fall apart. The pairs are kept as a set of bits: exact for ASCII, by hash beyond, where pairs
/// that share a bit merely leave a text uncut.
class WordBorders {
 public:
  /// An end of a symbol: the bytes of a character, or some of them, the last one lowest.
  using End = uint32_t;
  static constexpr End no_end = UINT32_MAX;  ///< such an end never lies at a border of characters

  /// The end of a symbol of these bytes that touches the symbol before it, or behind it.
  static End front_of(std::string_view symbol) {
    if (symbol.empty() || continues(symbol[0])) return no_end;
    return bytes_of(symbol.substr(0, length_of(symbol[0])));
  }
  static End back_of(std::string_view symbol) {
    size_t first = symbol.size();
    while (first > 0 && symbol.size() - first < 3 && continues(symbol[first - 1])) --first;
    if (first > 0 && !continues(symbol[first - 1]) && length_of(symbol[first - 1]) == symbol.size() - first + 1)
      --first;
    const bool whole = first < symbol.size() && !continues(symbol[first]);
    return whole || (first == 0 && !symbol.empty()) ? bytes_of(symbol.substr(first)) : no_end;
  }

  /// Two symbols with these ends may merge.
  void join(End back, End front) {
    if (back == no_end || front == no_end) return;
    set(back, front);
    partial_ |= is_partial(back) || is_partial(front);
  }
  /// Any two neighbouring parts of valid UTF-8 `token` may merge.
  void join_all(std::string_view token) {
    for_each_pair(token, [&](End left, End right, size_t) { set(left, right); });
  }

  /// Calls piece() with each piece of valid UTF-8 `text`, in order; together they are the text.
  template <class Piece>
  void split(std::string_view text, Piece&& piece) const {
    size_t begin = 0;
    for_each_pair(text, [&](End left, End right, size_t border) {
      if (joined(left, right)) return;
      piece(text.substr(begin, border - begin));
      begin = border;
    });
    if (begin < text.size()) piece(text.substr(begin));
  }

  /// Whether an end is a part of a character.
  static bool is_partial(End end) {
    const int bytes = end < 1u << 8 ? 1 : end < 1u << 16 ? 2 : end < 1u << 24 ? 3 : 4;
    const auto first = static_cast<char>(end >> 8 * (bytes - 1));
    return continues(first) || length_of(first) != static_cast<size_t>(bytes);
  }

 private:
  static constexpr uint32_t kBits = 1 << 20;

  static bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }
  static size_t length_of(char lead) {
    const auto byte = static_cast<uint8_t>(lead);
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
  }
  static End bytes_of(std::string_view bytes) {
    End end = 0;
    for (const char byte : bytes) end = end << 8 | static_cast<uint8_t>(byte);
    return end;
  }
  /// Neighbouring characters, and where the second one begins.
  template <class Pair>
  static void for_each_pair(std::string_view text, Pair pair) {
    size_t at = 0;
    const auto next = [&] {
      const std::string_view bytes = text.substr(at, length_of(text[at]));
      at += bytes.size();
      return bytes_of(bytes);
    };
    if (text.empty()) return;
    for (End left = next(); at < text.size();) {
      const size_t border = at;
      const End right = next();
      pair(left, right, border);
      left = right;
    }
  }

  static uint32_t bit_of(End left, End right) {
    if ((left | right) < 0x80) return left << 7 | right;
    return (left * 0x9E3779B1u ^ right * 0x85EBCA77u) >> 12;
  }
  void set(End left, End right) {
    const uint32_t bit = bit_of(left, right);
    joined_[bit / 64] |= uint64_t{1} << bit % 64;
  }
  bool test(End left, End right) const {
    const uint32_t bit = bit_of(left, right);
    return (joined_[bit / 64] >> bit % 64 & 1) != 0;
  }
  bool joined(End left, End right) const {
    if (test(left, right)) return true;
    if (!partial_) return false;
    // Any last bytes of the one character and first bytes of the other.
    for (End mask = UINT32_MAX; mask != 0; mask >>= 8) {
      if (mask < UINT32_MAX && mask >= left) continue;  // all of it again
      for (End front = right; front != 0; front >>= 8)
        if (test(left & mask, front)) return true;
    }
    return false;
  }

  std::vector<uint64_t> joined_ = std::vector<uint64_t>(kBits / 64);
  bool partial_ = false;  ///< some pair has a part of a character
};

}  // namespace gristmill::text
