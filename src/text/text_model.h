#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace gristmill::text {

/// What the text side of a server needs of a model: read from a GGUF file or a Hugging Face folder.
struct TextModel {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string chat_template;         ///< the model's own, or ChatML
  std::string chat_template_origin;  ///< its file, and key where there is one, for messages
  std::string bos, eos;              ///< their texts; empty when there is none
  std::vector<int32_t> end_ids;  ///< every id that ends a turn, of the tokenizer, config and generation_config together
  std::string generation_config;  ///< text of generation_config.json; empty when there is none
};

/// `path` is a GGUF file or a folder with tokenizer.json. Throws Error naming the file and what is wrong with it.
TextModel load_text_model(const std::string& path);

}  // namespace gristmill::text
