#pragma once
#include <cstdint>

namespace gristmill::model {

/// Where weights come from (--load-format).
enum class LoadFormat : uint8_t {
  automatic,    ///< what the path is
  safetensors,  ///< a Hugging Face folder
  gguf,         ///< a GGUF file
  dummy,        ///< a folder's config.json alone: numbers made up in place, the same every time
};

}  // namespace gristmill::model
