#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/merge_table.h"
#include "text/word_cache.h"

namespace gristmill::text {

/// What the segments of one text share while it is encoded.
struct EncodingWork {
  explicit EncodingWork(size_t text_bytes) : cache(text_bytes) {}

  WordCache cache;
  std::vector<int32_t> symbols;
  MergeTable::Scratch merging;
  std::vector<uint32_t> begins;  ///< of each character of a word
  std::string spelled;
};

}  // namespace gristmill::text
