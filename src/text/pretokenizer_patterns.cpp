#include <array>

#include "base/error.h"
#include "text/pretokenizer.h"

// The split patterns that published models were trained with, as their tokenizer.json (or tiktoken set-up) states them,
// under the names that GGUF files use for them. Several models share one pattern.

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST_OF_TIKTOKEN R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define CASED_WORD(SUFFIX)                                                                 \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" SUFFIX \
  "|"                                                                                      \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" SUFFIX "|"
#define REST_OF_CASED R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
// The published pattern intersects its classes with "not Han" (&&[^\p{Han}]), which PCRE2 cannot say; the same sets are
// written here as complements.
#define NOT_LOWER R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}])"
#define NOT_UPPER R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}])"

namespace gristmill::text {

const char* const gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

const char* const llama3 = CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" REST_OF_TIKTOKEN;
const char* const qwen2 = CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" REST_OF_TIKTOKEN;
const char* const qwen35 =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const gpt4o = CASED_WORD(CONTRACTIONS "?") R"(\p{N}{1,3}|)" REST_OF_CASED;
const char* const tekken = CASED_WORD("") R"(\p{N}|)" REST_OF_CASED;
const char* const kimi_k2 =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" NOT_LOWER "*" NOT_UPPER "+" CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" NOT_LOWER
    "+" NOT_UPPER "*" CONTRACTIONS R"(?|\p{N}{1,3}|)" REST_OF_TIKTOKEN;
const char* const bailing = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                            R"(\s*[\r\n]|\s+(?!\S)|\s+)";
const char* const seed_coder =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const one_digit = R"(\p{N})";
const char* const three_ascii_digits = "[0-9][0-9][0-9]";
const char* const deepseek3_numbers = R"(\p{N}{1,3})";
const char* const deepseek3_cjk = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
const char* const deepseek3_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Entry {
  std::initializer_list<const char*> names;
  std::initializer_list<const char*> patterns;
  bool nfc, ignore_merges, add_bos;
};

const Entry* entries(size_t& count) {
  static const Entry table[] = {
      {{"gpt-2", "phi-2", "roberta-bpe", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code", "trillion",
        "granite-docling", "exaone4", "gigachat", "mellum", "a.x-4.0"},
       {gpt2_pattern},
       false,
       false,
       false},
      {{"mpt", "olmo"}, {gpt2_pattern}, true, false, false},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {one_digit, gpt2_pattern},
       false,
       false,
       false},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {llama3},
       false,
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {llama3}, false, false, false},
      {{"qwen2", "megrez"}, {qwen2}, true, false, false},
      {{"deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "grok-2"}, {qwen2}, false, false, false},
      {{"qwen35"}, {qwen35}, true, false, false},
      {{"tekken"}, {tekken}, false, true, true},
      {{"gpt-4o", "llama4"}, {gpt4o}, false, true, false},
      {{"minimax-m2", "kanana2"}, {gpt4o}, false, false, false},
      {{"kimi-k2"}, {kimi_k2}, false, false, false},
      {{"deepseek-v3", "hunyuan-dense"}, {deepseek3_numbers, deepseek3_cjk, deepseek3_words}, false, false, false},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {bailing}, false, false, false},
      {{"seed-coder"}, {seed_coder}, false, false, false},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_pattern, three_ascii_digits}, false, false, false},
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", three_ascii_digits}, false, false, false},
  };
  count = std::size(table);
  return table;
}

}  // namespace

KnownPretokenizer known_pretokenizer(std::string_view name) {
  size_t count = 0;
  const Entry* table = entries(count);
  std::string known;
  for (size_t i = 0; i < count; ++i) {
    for (const char* candidate : table[i].names) {
      if (name == candidate) {
        return {{table[i].patterns.begin(), table[i].patterns.end()},
                table[i].nfc,
                table[i].ignore_merges,
                table[i].add_bos};
      }
      known += known.empty() ? "" : ", ";
      known += candidate;
    }
  }
  throw Error(cat("tokenizer.ggml.pre: unknown pre-tokenizer \"", name, "\"; known are ", known));
}

}  // namespace gristmill::text
