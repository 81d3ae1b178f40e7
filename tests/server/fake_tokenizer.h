#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/guarded_text.h"
#include "text/tokenizer.h"

namespace gristmill::server {

/// One token a byte, and a few control tokens.
class FakeTokenizer final : public text::Tokenizer {
 public:
  static constexpr int32_t bos_id = 256, eos_id = 257, start_id = 258, end_id = 259, size = 260;

  std::vector<int32_t> encode(std::string_view text, bool add_special, bool parse_special) const override {
    std::vector<int32_t> ids;
    if (add_special) ids.push_back(bos_id);
    while (!text.empty()) {
      int32_t id = static_cast<unsigned char>(text[0]);
      size_t length = 1;
      for (int32_t special = bos_id; parse_special && special < size; ++special) {
        if (!text.starts_with(names()[static_cast<size_t>(special - bos_id)])) continue;
        id = special;
        length = names()[static_cast<size_t>(special - bos_id)].size();
      }
      ids.push_back(id);
      text.remove_prefix(length);
    }
    return ids;
  }
  std::string guarded(std::string_view text) const override {
    std::string out;
    for (; !text.empty(); text.remove_prefix(1)) {
      out += text[0];
      for (const auto& name : names())
        if (text.starts_with(name)) out += text::guard_mark;
    }
    return out;
  }
  std::vector<int32_t> encode_guarded(std::string_view text, bool add_special) const override {
    std::vector<int32_t> ids = encode(text, add_special, true);
    const std::vector<int32_t> mark = encode(text::guard_mark, false, false);
    for (auto at = ids.begin(); (at = std::search(ids.begin(), ids.end(), mark.begin(), mark.end())) != ids.end();)
      ids.erase(at, at + static_cast<std::ptrdiff_t>(mark.size()));
    return ids;
  }
  std::string_view token_bytes(int32_t id, bool skip_special) const override {
    static const std::string bytes = [] {
      std::string all;
      for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
      return all;
    }();
    if (id < 0 || id >= size) return {};
    if (id < bos_id) return std::string_view(bytes).substr(static_cast<size_t>(id), 1);
    return skip_special ? std::string_view() : std::string_view(names()[static_cast<size_t>(id - bos_id)]);
  }
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string out;
    for (const int32_t id : ids) out += token_bytes(id, skip_special);
    return out;
  }
  int32_t vocabulary() const override { return size; }
  int32_t bos() const override { return bos_id; }
  int32_t eos() const override { return eos_id; }
  const std::vector<int32_t>& end_ids() const override {
    static const std::vector<int32_t> ids = {eos_id, end_id};
    return ids;
  }
  std::string_view token_text(int32_t id) const override { return token_bytes(id, false); }
  bool is_special(int32_t id) const override { return id >= bos_id && id < size; }
  int32_t longest_token() const override { return 12; }

 private:
  static const std::vector<std::string>& names() {
    static const std::vector<std::string> all = {"<bos>", "<eos>", "<|im_start|>", "<|im_end|>"};
    return all;
  }
};

}  // namespace gristmill::server
