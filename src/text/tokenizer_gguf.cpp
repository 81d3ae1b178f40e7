#include <optional>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer.h"
#include "weights/gguf.h"

namespace gristmill::text {
namespace {

using weights::GgufFile;

Error problem(const GgufFile& file, std::string_view key, const std::string& what) {
  return Error(cat(file.path(), ": key \"", key, "\": ", what));
}

std::vector<TokenKind> read_kinds(const GgufFile& file, size_t tokens) {
  static constexpr std::string_view key = "tokenizer.ggml.token_type";
  if (!file.has(key)) return std::vector<TokenKind>(tokens, TokenKind::normal);
  const std::vector<int64_t> types = file.integers(key);
  if (types.size() != tokens) {
    throw problem(file, key, cat(types.size(), " entries, but tokenizer.ggml.tokens has ", tokens));
  }
  std::vector<TokenKind> kinds(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    if (types[i] < 1 || types[i] > 6)
      throw problem(file, key, cat("entry ", i, " is ", types[i], "; 1 to 6 are known"));
    kinds[i] = static_cast<TokenKind>(types[i]);
  }
  return kinds;
}

// The id under `key`, or -1. Some files say -1 or 2^32 - 1 themselves for "none".
int32_t read_id(const GgufFile& file, std::string_view key, int32_t vocabulary) {
  if (!file.has(key)) return -1;
  const int64_t id = file.integer(key);
  if (id == -1 || id == UINT32_MAX) return -1;
  if (id < 0 || id >= vocabulary) throw problem(file, key, cat(id, " is outside the vocabulary of ", vocabulary));
  return static_cast<int32_t>(id);
}

void fill_common(const GgufFile& file, TokenizerParts& parts, bool add_bos_otherwise) {
  const int32_t size = parts.vocabulary.size();
  std::vector<AddedToken> added;
  for (int32_t id = 0; id < size; ++id) {
    const TokenKind kind = parts.vocabulary.kind(id);
    if (kind != TokenKind::control && kind != TokenKind::unknown && kind != TokenKind::user_defined) continue;
    added.push_back({std::string(parts.vocabulary.text(id)), id, kind != TokenKind::user_defined, false, false, false});
  }
  parts.added = AddedTokens(std::move(added));
  parts.bos = read_id(file, "tokenizer.ggml.bos_token_id", size);
  parts.eos = read_id(file, "tokenizer.ggml.eos_token_id", size);
  parts.end_ids = find_end_ids(parts.vocabulary, {parts.eos, read_id(file, "tokenizer.ggml.eot_token_id", size),
                                                  read_id(file, "tokenizer.ggml.eom_token_id", size)});
  if (file.boolean("tokenizer.ggml.add_bos_token", add_bos_otherwise) && parts.bos >= 0) parts.prefix = {parts.bos};
  if (file.boolean("tokenizer.ggml.add_eos_token", false) && parts.eos >= 0) parts.suffix = {parts.eos};
}

std::unique_ptr<Tokenizer> make_byte_level(const std::shared_ptr<const GgufFile>& file,
                                           std::vector<std::string_view> texts, std::vector<TokenKind> kinds) {
  static constexpr std::string_view merges_key = "tokenizer.ggml.merges";
  KnownPretokenizer known;
  try {
    known = known_pretokenizer(file->string("tokenizer.ggml.pre", "default"));
  } catch (const Error& error) {
    throw Error(cat(file->path(), ": ", error.what()));
  }
  BpeParts parts;
  parts.spelling = Spelling::byte_level;
  parts.ignore_merges = known.ignore_merges;
  if (known.nfc) parts.common.normalizer.add_nfc();
  std::vector<SplitStep> steps;
  steps.reserve(known.patterns.size());
  for (const std::string& pattern : known.patterns) steps.push_back({Regex(pattern), SplitBehavior::isolated, false});
  parts.pretokenizer = Pretokenizer(std::move(steps));

  parts.in_words.resize(texts.size());
  TokenIndex index(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    parts.in_words[i] = kinds[i] == TokenKind::normal || kinds[i] == TokenKind::user_defined;
    if (kinds[i] == TokenKind::normal) index.add(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < texts.size(); ++i) {  // merges may also make tokens that files call user-defined
    if (kinds[i] != TokenKind::normal) index.add(static_cast<int32_t>(i));
  }
  const std::vector<std::string_view> merges = file->strings(merges_key);
  parts.merges = MergeTable(merges.size());
  std::string joint;
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ', 1);
    if (space == std::string_view::npos ||
        !add_merge(parts.merges, index, merges[i].substr(0, space), merges[i].substr(space + 1), joint)) {
      throw problem(*file, merges_key, cat("entry ", i, " does not join two tokens of the vocabulary to a third"));
    }
  }
  parts.common.vocabulary = Vocabulary(file, std::move(texts), std::move(kinds), Spelling::byte_level);
  fill_common(*file, parts.common, known.add_bos);
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> make_sentencepiece(const std::shared_ptr<const GgufFile>& file,
                                              std::vector<std::string_view> texts, std::vector<TokenKind> kinds) {
  static constexpr std::string_view scores_key = "tokenizer.ggml.scores";
  std::vector<float> scores = file->numbers(scores_key);
  if (scores.size() != texts.size()) {
    throw problem(*file, scores_key, cat(scores.size(), " entries, but tokenizer.ggml.tokens has ", texts.size()));
  }
  TokenizerParts parts;
  parts.vocabulary = Vocabulary(file, std::move(texts), std::move(kinds), Spelling::sentencepiece);
  fill_common(*file, parts, true);
  const bool add_space_prefix = file->boolean("tokenizer.ggml.add_space_prefix", true);
  parts.strip_leading_space = add_space_prefix;
  const int32_t unknown = read_id(*file, "tokenizer.ggml.unknown_token_id", parts.vocabulary.size());
  return std::make_unique<SentencepieceTokenizer>(std::move(parts), std::move(scores), add_space_prefix, unknown);
}

}  // namespace

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const std::shared_ptr<const GgufFile>& file) {
  static constexpr std::string_view model_key = "tokenizer.ggml.model", tokens_key = "tokenizer.ggml.tokens";
  const std::string_view model = file->string(model_key);
  if (model != "gpt2" && model != "llama") {
    throw problem(*file, model_key, cat("unknown tokenizer model \"", model, "\"; known are gpt2, llama"));
  }
  std::vector<std::string_view> texts = file->strings(tokens_key);
  if (texts.empty()) throw problem(*file, tokens_key, "the vocabulary is empty");
  std::vector<TokenKind> kinds = read_kinds(*file, texts.size());
  return model == "gpt2" ? make_byte_level(file, std::move(texts), std::move(kinds))
                         : make_sentencepiece(file, std::move(texts), std::move(kinds));
}

}  // namespace gristmill::text
