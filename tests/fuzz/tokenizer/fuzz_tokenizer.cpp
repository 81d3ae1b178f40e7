// Encoding arbitrary text never crashes, gives ids of the vocabulary and decodes to the text again; a hostile
// tokenizer.json ends in an Error. The first byte of the input picks what is tried.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_level.h"
#include "text/detokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_hf.h"
#include "text/utf8.h"

namespace {

using namespace gristmill::text;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

constexpr const char* pretokenizers[] = {"smollm",      "llama-bpe", "qwen35", "gpt-4o",
                                         "deepseek-v3", "kimi-k2",   "default"};

std::unique_ptr<Tokenizer> byte_level(const char* name) {
  auto storage = std::make_shared<std::vector<std::string>>();
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    append_utf8(text, byte_level_character(static_cast<uint8_t>(byte)));
    storage->push_back(text);
  }
  const std::pair<const char*, const char*> merges[] = {
      {"a", "a"}, {"aa", "aa"}, {"\u0120", "a"}, {"e", "r"}, {"1", "2"}, {"\u0120", "\u0120"}, {"\u00C3", "\u00A9"}};
  for (const auto& [left, right] : merges) storage->push_back(std::string(left) + right);
  const size_t words = storage->size();
  for (const char* token : {"<|im_start|>", "<|im_end|>", "<|im"}) storage->push_back(token);
  std::vector<std::string_view> texts(storage->begin(), storage->end());
  std::vector<TokenKind> kinds(texts.size(), TokenKind::normal);
  BpeParts parts;
  const KnownPretokenizer known = known_pretokenizer(name);
  std::vector<SplitStep> steps;
  for (const std::string& pattern : known.patterns) steps.push_back({Regex(pattern), SplitBehavior::isolated, false});
  parts.pretokenizer = Pretokenizer(std::move(steps));
  parts.ignore_merges = known.ignore_merges;
  parts.in_words.resize(texts.size());
  TokenIndex index(texts);
  std::vector<AddedToken> added;
  for (size_t i = 0; i < texts.size(); ++i) {
    parts.in_words[i] = i < words;
    index.add(static_cast<int32_t>(i));
    if (i < words) continue;
    kinds[i] = TokenKind::control;
    added.push_back({std::string(texts[i]), static_cast<int32_t>(i), true, false, false, false});
  }
  parts.merges = MergeTable(std::size(merges));
  std::string joint;
  for (const auto& [left, right] : merges)
    require(add_merge(parts.merges, index, left, right, joint), "merges are complete");
  parts.common.added = AddedTokens(std::move(added));
  parts.common.vocabulary = Vocabulary(storage, texts, kinds, Spelling::byte_level);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> sentencepiece() {
  auto storage = std::make_shared<std::vector<std::string>>();
  std::vector<TokenKind> kinds;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    storage->push_back(text);
    kinds.push_back(TokenKind::byte);
  }
  for (const char* piece : {"\u2581", "a", "aa", "aaaa", "\u2581a", "er", "e", "\u6c34"}) {
    storage->push_back(piece);
    kinds.push_back(TokenKind::normal);
  }
  std::vector<float> scores(kinds.size());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  TokenizerParts parts;
  parts.vocabulary = Vocabulary(storage, {storage->begin(), storage->end()}, kinds, Spelling::sentencepiece);
  return std::make_unique<SentencepieceTokenizer>(std::move(parts), std::move(scores), false, -1);
}

void try_text(const Tokenizer& tokenizer, std::string_view text, bool exact) {
  std::vector<int32_t> ids;
  try {
    ids = tokenizer.encode(text, false, true);
  } catch (const gristmill::RequestError&) {
    require(find_invalid_utf8(text) != std::string_view::npos, "valid text is encoded");
    return;
  }
  Detokenizer detokenizer(tokenizer, false);
  std::string streamed;
  for (const int32_t id : ids) {
    require(id >= 0 && id < tokenizer.vocabulary(), "ids are of the vocabulary");
    const std::string piece = detokenizer.push(id);
    require(find_invalid_utf8(piece) == std::string_view::npos, "streamed text is valid");
    streamed += piece;
  }
  streamed += detokenizer.finish();
  require(streamed == tokenizer.decode(ids, false), "stream and whole decode alike");
  if (exact) require(streamed == text, "text survives");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& tokenizers = *[] {
    auto* list = new std::vector<std::unique_ptr<Tokenizer>>;
    for (const char* name : pretokenizers) list->push_back(byte_level(name));
    list->push_back(sentencepiece());
    return list;
  }();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t choice = data[0] % (tokenizers.size() + 2);
  if (choice < tokenizers.size()) {
    // U+2581 is a space to SentencePiece, and does not come back.
    const bool exact = choice + 1 < tokenizers.size() || text.find(sentencepiece_space) == std::string_view::npos;
    try_text(*tokenizers[choice], text, exact);
  } else if (choice == tokenizers.size()) {
    try {
      const auto tokenizer = make_hf_tokenizer(text, "");
      try_text(*tokenizer, "A mill, 12 <|im_end|> \u6c34\u00e9", false);
    } catch (const gristmill::Error&) {
    }
  } else {  // stop strings are the lines before an empty line; the rest streams byte by byte
    const size_t end = text.find("\n\n");
    std::vector<std::string> stops(1);
    for (const char c : text.substr(0, end)) {
      if (c == '\n') {
        stops.emplace_back();
      } else {
        stops.back() += c;
      }
    }
    const std::string_view stream = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
    StopStrings watcher(stops);
    std::string out;
    int matched = -1;
    for (size_t i = 0; i < stream.size() && matched < 0; ++i) {
      StopStrings::Result result = watcher.push(stream.substr(i, 1));
      out += result.text;
      matched = result.matched;
    }
    if (matched < 0) {
      require(out + watcher.finish() == stream, "without a match all text comes out");
    } else {
      const std::string whole = out + stops[static_cast<size_t>(matched)];
      require(stream.substr(0, whole.size()) == whole, "the text ends before the stop string");
    }
  }
  return 0;
}
