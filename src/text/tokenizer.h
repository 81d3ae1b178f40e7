#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::weights {
class GgufFile;
}

namespace gristmill::text {

/// Text to token ids and back. Immutable and thread safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// `text` must be valid UTF-8 (RequestError with an empty field otherwise, also for texts beyond 256 MB).
  /// `add_special`: put BOS (and EOS) as the model's files say. `parse_special`: control tokens written in the text
  /// (`<|im_end|>`) become their ids; user text passes false.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special, bool parse_special) const = 0;
  /// `text` with a mark inside each control token that it spells (text/guarded_text.h).
  virtual std::string guarded(std::string_view text) const { return std::string(text); }
  /// encode() with control tokens parsed, except across the marks of guarded() parts, which are taken out.
  virtual std::vector<int32_t> encode_guarded(std::string_view text, bool add_special) const {
    return encode(text, add_special, true);
  }
  /// The bytes of one token, perhaps half a character; empty for control tokens when `skip_special`. Ids outside the
  /// vocabulary give "".
  virtual std::string_view token_bytes(int32_t id, bool skip_special) const = 0;
  /// Valid UTF-8: the text that a Detokenizer gives for `ids`; SentencePiece's leading space is taken back.
  virtual std::string decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;

  virtual int32_t vocabulary() const = 0;
  virtual int32_t bos() const = 0;  ///< -1: none
  virtual int32_t eos() const = 0;  ///< -1: none
  /// All ids that end a turn: EOS, EOT, EOM and the usual turn-end tokens of the vocabulary.
  virtual const std::vector<int32_t>& end_ids() const = 0;
  virtual std::string_view token_text(int32_t id) const = 0;  ///< as written in the vocabulary
  virtual bool is_special(int32_t id) const = 0;
  /// The longest token in bytes: bounds the number of characters a prompt of n tokens can have.
  virtual int32_t longest_token() const = 0;
};

/// The tokenizer that a GGUF file describes (spec: ggml's GGUF v3, keys tokenizer.ggml.*): byte-level BPE ("gpt2") or
/// SentencePiece BPE ("llama"). Keeps the file open, as token texts are views into it. Throws Error naming the key that
/// is missing or wrong.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const std::shared_ptr<const weights::GgufFile>& file);

}  // namespace gristmill::text
