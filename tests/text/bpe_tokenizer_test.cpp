// Shortcuts of the byte-pair tokenizer (cuts at borders that no merge crosses, whole characters to start from, repeated
// words) against the definition: the lowest rank first, pair after pair, over the whole text.
#include "text/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace gristmill::text {
namespace {

const std::vector<std::string> kCharacters = {"a",      "b",      " ",      "\u00e9",    "\u0431",
                                              "\u5b57", "\u5178", "\u3002", "\U0001f999"};

class RandomBpe {
 public:
  RandomBpe(Spelling spelling, bool ignore_merges, uint32_t seed) : spelling_(spelling), random_(seed) {
    if (spelling == Spelling::byte_level) {
      for (int byte = 0; byte < 256; ++byte) {
        append_byte_level(add(), std::string(1, static_cast<char>(byte)));
        start_[std::string(1, static_cast<char>(byte))] = byte;
      }
    } else {
      for (const std::string& character : kCharacters) {
        start_[character] = static_cast<int32_t>(texts_->size());
        add() = character;
      }
      for (int byte = 0; byte < 256; ++byte) {
        char spelled[8];
        std::snprintf(spelled, sizeof spelled, "<0x%02X>", static_cast<unsigned>(byte));
        add() = spelled;
      }
    }
    // Merges that occur: each joins two neighbours of a text as it is merged so far.
    for (int i = 0; i < 60; ++i) {
      const std::vector<int32_t> symbols = merged(text(30));
      if (symbols.size() < 2) continue;
      const size_t at = random_() % (symbols.size() - 1);
      const int32_t left = symbols[at], right = symbols[at + 1];
      merges_.push_back({left, right, static_cast<int32_t>(texts_->size())});
      const std::string joint = (*texts_)[static_cast<size_t>(left)] + (*texts_)[static_cast<size_t>(right)];
      add() = joint;
    }
    BpeParts parts;
    parts.spelling = spelling;
    parts.ignore_merges = ignore_merges;
    parts.byte_fallback = parts.fuse_unknown = spelling == Spelling::sentencepiece;
    std::vector<std::string_view> views(texts_->begin(), texts_->end());
    parts.in_words.assign(views.size(), true);
    parts.merges = MergeTable(merges_.size());
    for (const Joint& each : merges_) parts.merges.add(each.left, each.right, each.result);
    parts.common.vocabulary =
        Vocabulary(texts_, views, std::vector<TokenKind>(views.size(), TokenKind::normal), spelling);
    tokenizer_ = std::make_unique<BpeTokenizer>(std::move(parts));
  }

  std::string text(size_t characters) {
    std::string made;
    for (size_t i = 0; i < characters; ++i) made += kCharacters[random_() % kCharacters.size()];
    return made;
  }
  std::vector<int32_t> encoded(const std::string& text) const { return tokenizer_->encode(text, false, false); }
  std::vector<int32_t> merged(const std::string& text) const {
    std::vector<int32_t> symbols;
    for (size_t at = 0; at < text.size();) {
      size_t end = at + 1;
      if (spelling_ == Spelling::sentencepiece) next_code_point(text, end = at);
      symbols.push_back(start_.at(text.substr(at, end - at)));
      at = end;
    }
    for (;;) {
      const Joint* best = nullptr;
      size_t place = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        for (const Joint& each : merges_) {
          if (best != nullptr && &each >= best) break;
          if (each.left == symbols[i] && each.right == symbols[i + 1]) {
            best = &each;
            place = i;
            break;
          }
        }
      }
      if (best == nullptr) return symbols;
      symbols[place] = best->result;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
  }
  size_t merges() const { return merges_.size(); }

 private:
  struct Joint {
    int32_t left, right, result;
  };
  std::string& add() { return texts_->emplace_back(); }

  Spelling spelling_;
  std::mt19937 random_;
  std::shared_ptr<std::vector<std::string>> texts_ = std::make_shared<std::vector<std::string>>();
  std::map<std::string, int32_t> start_;
  std::vector<Joint> merges_;
  std::unique_ptr<BpeTokenizer> tokenizer_;
};

TEST(BpeTokenizer, ShortcutsGiveWhatTheDefinitionSays) {
  for (const Spelling spelling : {Spelling::byte_level, Spelling::sentencepiece}) {
    for (uint32_t seed = 0; seed < 60; ++seed) {
      RandomBpe bpe(spelling, false, seed);
      EXPECT_GT(bpe.merges(), 20u);
      for (const size_t length : {1u, 3u, 9u, 40u, 200u}) {
        const std::string text = bpe.text(length);
        ASSERT_EQ(bpe.encoded(text), bpe.merged(text)) << "seed " << seed << ": " << text;
      }
    }
  }
}

TEST(BpeTokenizer, LongTextsOfVocabulariesThatTakeWordsWholeAreCutToo) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    RandomBpe bpe(Spelling::byte_level, true, seed);
    const std::string text = bpe.text(300);  // no token is as long
    ASSERT_EQ(bpe.encoded(text), bpe.merged(text)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gristmill::text
