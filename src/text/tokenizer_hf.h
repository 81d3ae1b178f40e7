#pragma once
#include <memory>
#include <string_view>

#include "text/tokenizer.h"

namespace gristmill::text {

/// The tokenizer that the text of a Hugging Face `tokenizer.json` describes: BPE models with byte-level or
/// SentencePiece spelling. `config_json` is the text of `tokenizer_config.json` (names of BOS and EOS), or empty.
/// Throws Error naming the entry that is missing, wrong or not supported. The texts need not live on.
std::unique_ptr<Tokenizer> make_hf_tokenizer(std::string_view tokenizer_json, std::string_view config_json);

}  // namespace gristmill::text
