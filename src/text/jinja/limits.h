#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "text/jinja/error.h"

namespace gristmill::jinja {

/// What one template may use. Templates come with model files, so they are treated as hostile: reaching a limit throws
/// a TemplateError (Fault::limit).
struct Limits {
  /// Steps of the interpreter: one per node evaluated, and one per item or 16 bytes that a built-in works on.
  uint64_t steps = 50'000'000;
  /// Levels of nested evaluation (expressions, statements and macro calls together); bounds the stack.
  int depth = 2500;
  /// Macro calls and recursive loops inside each other.
  int calls = 200;
  /// Bytes of text in the result.
  size_t output_bytes = size_t{64} << 20;
  /// Bytes of strings, lists and dicts that one render builds, whether kept or not.
  uint64_t memory_bytes = uint64_t{256} << 20;
  /// Items of a range(), as in jinja2's sandbox.
  int64_t range_items = 100'000;
};

/// Limits of the parser.
struct ParseLimits {
  size_t source_bytes = size_t{4} << 20;
  /// Parentheses, brackets and blocks inside each other.
  int nesting = 150;
};

/// Counts down what a render may still use. Not thread safe: one per render.
class Budget {
 public:
  explicit Budget(const Limits& limits)
      : limits_(limits), steps_left_(limits.steps), memory_left_(limits.memory_bytes) {}
  const Limits& limits() const { return limits_; }

  void steps(uint64_t count) {
    if (count > steps_left_) {
      steps_left_ = 0;
      throw TemplateError(Fault::limit, cat("the template needs more than the limit of ", limits_.steps, " steps"));
    }
    steps_left_ -= count;
  }
  /// Work on `bytes` bytes of text.
  void scan(size_t bytes) { steps(1 + bytes / 16); }
  /// Called before `bytes` are built.
  void memory(uint64_t bytes) {
    if (bytes > memory_left_) {
      memory_left_ = 0;
      throw TemplateError(Fault::limit,
                          cat("the template builds more than the limit of ", limits_.memory_bytes, " bytes"));
    }
    memory_left_ -= bytes;
  }
  /// Called before places for `count` values in a list, dict or frame are built.
  void items(uint64_t count) {
    steps(count);
    memory(times(count, 16));
  }
  /// The same where the values are made too, and may be texts or pairs of their own.
  void values(uint64_t count) {
    steps(count);
    memory(times(count, 96));
  }
  /// Called before `bytes` of text are built: memory and the work of copying.
  void text(uint64_t bytes) {
    memory(bytes);
    steps(1 + bytes / 64);
  }
  /// How long the text of one value may be.
  size_t text_room() const { return static_cast<size_t>(std::min<uint64_t>(memory_left_, limits_.output_bytes)); }

 private:
  static uint64_t times(uint64_t count, uint64_t size) {
    uint64_t product = 0;
    return __builtin_mul_overflow(count, size, &product) ? std::numeric_limits<uint64_t>::max() : product;
  }

  const Limits& limits_;
  uint64_t steps_left_;
  uint64_t memory_left_;
};

}  // namespace gristmill::jinja
