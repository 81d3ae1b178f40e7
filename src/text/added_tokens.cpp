#include "text/added_tokens.h"

#include <algorithm>

#include "text/regex.h"
#include "text/utf8.h"

namespace gristmill::text {
namespace {

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool is_word_character(std::string_view text, size_t at) {
  static const Regex word(R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}])");
  size_t end = at;
  next_code_point(text, end);
  Regex::Match match{};
  return word.find(text.substr(at, end - at), 0, match);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.empty(); });
  if (tokens_.empty()) return;
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.text != b.text ? a.text < b.text : a.id < b.id; });
  // Level by level: a node owns a range of the sorted tokens, all of which begin with its path.
  struct Range {
    size_t begin, end, depth;
  };
  nodes_.push_back({});
  std::vector<Range> ranges{{0, tokens_.size(), 0}};
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (tokens_[begin].text.size() == depth) {
      nodes_[node].token = static_cast<int32_t>(begin);
      while (begin < end && tokens_[begin].text.size() == depth) ++begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = tokens_[begin].text[depth];
      size_t same = begin;
      while (same < end && tokens_[same].text[depth] == byte) ++same;
      Node child;
      child.byte = static_cast<uint8_t>(byte);
      nodes_.push_back(child);
      ranges.push_back({begin, same, depth + 1});
      ++nodes_[node].children;
      begin = same;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].children; ++i)
    roots_[nodes_[nodes_[0].first_child + i].byte] = nodes_[0].first_child + i;
}

int32_t AddedTokens::longest_at(std::string_view text, size_t at, size_t special_end) const {
  int32_t best = -1;
  uint32_t node = roots_[static_cast<uint8_t>(text[at])];
  while (node != 0) {
    const Node& here = nodes_[node];
    ++at;
    if (here.token >= 0 && (at <= special_end || !tokens_[static_cast<size_t>(here.token)].special)) best = here.token;
    if (at == text.size()) break;
    const uint8_t byte = static_cast<uint8_t>(text[at]);
    const Node* first = nodes_.data() + here.first_child;
    const Node* last = first + here.children;
    const Node* child = std::find_if(first, last, [byte](const Node& n) { return n.byte == byte; });
    node = child == last ? 0 : static_cast<uint32_t>(child - nodes_.data());
  }
  return best;
}

bool AddedTokens::control_at(std::string_view text, size_t at) const {
  // The longest one with control tokens is another one than without.
  return !empty() && longest_at(text, at, text.size()) != longest_at(text, at, 0);
}

bool AddedTokens::find(std::string_view text, size_t from, bool special_too, Hit& hit,
                       std::span<const size_t> marks) const {
  if (empty()) return false;
  for (size_t at = from; at < text.size(); ++at) {
    if (roots_[static_cast<uint8_t>(text[at])] == 0) continue;
    size_t special_end = special_too ? text.size() : 0;
    if (const auto mark = std::upper_bound(marks.begin(), marks.end(), at); mark != marks.end())
      special_end = std::min(special_end, *mark);
    const int32_t found = longest_at(text, at, special_end);
    if (found < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    hit = {at, at + token.text.size(), token.id};
    if (token.single_word && ((hit.begin > 0 && is_word_character(text, before(text, hit.begin))) ||
                              (hit.end < text.size() && is_word_character(text, hit.end)))) {
      at = hit.end - 1;  // as the reference does, the search goes on behind the token
      continue;
    }
    while (token.lstrip && hit.begin > from) {
      size_t previous = before(text, hit.begin);
      const size_t begin = previous;
      if (!is_white_space(next_code_point(text, previous))) break;
      hit.begin = begin;
    }
    while (token.rstrip && hit.end < text.size()) {
      size_t end = hit.end;
      if (!is_white_space(next_code_point(text, end))) break;
      hit.end = end;
    }
    return true;
  }
  return false;
}

}  // namespace gristmill::text
