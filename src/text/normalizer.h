#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::text {

/// Brings text into the form that the vocabulary was trained on. Immutable and thread safe.
class Normalizer {
 public:
  void add_nfc();
  void add_replace(std::string from, std::string to);  ///< literal; `from` is not empty
  void add_prepend(std::string prefix);                ///< not to empty text
  /// `text` itself when nothing changes, otherwise a view into `storage`, which this call overwrites.
  std::string_view apply(std::string_view text, std::string& storage) const;
  bool empty() const { return steps_.empty(); }

 private:
  enum class Kind : uint8_t { nfc, replace, prepend };
  struct Step {
    Kind kind;
    std::string from, to;
  };
  std::vector<Step> steps_;
};

/// Whether valid UTF-8 `text` is certainly in normal form C: it holds only characters of common scripts that have
/// NFC_Quick_Check=Yes and combining class 0 (Unicode annex 15, section 9). False means "perhaps not".
bool quick_check_nfc(std::string_view text);

}  // namespace gristmill::text
