#pragma once
#include <utility>

#include "text/jinja/interpreter.h"

namespace gristmill::jinja {

/// One level of nested evaluation.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : depth_(interpreter.depth_) {
    const int limit = interpreter.budget_.limits().depth;
    if (depth_ >= limit) throw TemplateError(Fault::limit, cat("the template nests deeper than the limit of ", limit));
    ++depth_;
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

/// Runs in another frame for a while.
class Interpreter::Activation {
 public:
  Activation(Interpreter& interpreter, Ref<Frame> frame)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.frame_, std::move(frame))) {}
  ~Activation() { interpreter_.frame_ = std::move(outer_); }
  Activation(const Activation&) = delete;
  Activation& operator=(const Activation&) = delete;

 private:
  Interpreter& interpreter_;
  Ref<Frame> outer_;
};

/// Collects what is printed for a while.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text_)) {}
  ~Capture() { interpreter_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return Value(std::move(text_)); }

 private:
  Interpreter& interpreter_;
  std::string text_;
  std::string* outer_;
};

}  // namespace gristmill::jinja
