#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace gristmill::jinja {

class Interpreter;

/// Everything that is not plain data: macros, namespaces, the loop variable, generators, views, functions.
class Object : public Shared {
 public:
  /// Python's type(x).__name__.
  virtual std::string_view type_name() const = 0;
  /// Appends str(x), which is repr(x) too. `level` objects and containers are being printed around it; stops like
  /// append_text() of python_text.h.
  virtual void append_text(std::string& out, size_t room, int level) const;
  virtual bool truth() { return true; }
  /// len(x), where Python has one.
  virtual std::optional<size_t> length() { return std::nullopt; }

  virtual bool iterable() const { return false; }
  /// Item `index` of an iterable object that has a length; iterating it walks over these.
  virtual Value item(size_t index);
  /// Whether x[index] gives item(index).
  virtual bool subscriptable() const { return false; }
  /// The next item of an iterable object without a length; false at the end. Iterating consumes it.
  virtual bool advance(Value& out);

  /// The attribute, or missing.
  virtual Value attribute(std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Arguments& arguments);
  /// Lets go of all values, at the end of a render: what can come to hold itself is kept until then.
  virtual void clear() {}

 protected:
  void hold(const Value& inner) { depth = std::max(depth, depth_around(inner.depth())); }
};

template <class T, class... Parts>
Value make_object(Parts&&... parts) {
  return Value(Ref<Object>(new T(std::forward<Parts>(parts)...)));
}

/// What namespace() makes: the only value that a template can change.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  void append_text(std::string& out, size_t room, int level) const override;
  Value attribute(std::string_view name) override;
  /// Throws for names with an underscore in front, as transformers does.
  void set(const Value& name, Value value);
  void clear() override { attributes_.clear(); }

 private:
  Dict attributes_;
};

/// range(): its numbers are computed as they are asked for.
class Range final : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step, size_t size)
      : start_(start), stop_(stop), step_(step), size_(size) {}
  std::string_view type_name() const override { return "range"; }
  void append_text(std::string& out, size_t room, int level) const override;
  bool truth() override { return size_ > 0; }
  std::optional<size_t> length() override { return size_; }
  bool iterable() const override { return true; }
  bool subscriptable() const override { return true; }
  Value item(size_t index) override { return start_ + static_cast<int64_t>(index) * step_; }
  Value attribute(std::string_view name) override;

 private:
  int64_t start_, stop_, step_;
  size_t size_;
};

/// dict.keys(), .values() and .items().
class DictView final : public Object {
 public:
  enum class Part { keys, values, items };
  DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) { hold(dict_); }
  std::string_view type_name() const override;
  void append_text(std::string& out, size_t room, int level) const override;
  bool truth() override { return !dict_.dict().empty(); }
  std::optional<size_t> length() override { return dict_.dict().size(); }
  bool iterable() const override { return true; }
  Value item(size_t index) override;
  Part part() const { return part_; }
  const Dict& dict() const { return dict_.dict(); }

 private:
  Value dict_;
  Part part_;
};

/// A lazy sequence that can be walked over once, as most sequence filters return.
class Generator final : public Object {
 public:
  /// `next` writes the next item and returns true, or returns false at the end. `source` is what it reads from.
  Generator(const Value& source, std::function<bool(Value&)> next) : next_(std::move(next)) { hold(source); }
  std::string_view type_name() const override { return "generator"; }
  bool iterable() const override { return true; }
  bool advance(Value& out) override;

 private:
  std::function<bool(Value&)> next_;
};

/// Walks over any iterable value. Throws TypeError's words if it is none.
class Iterator {
 public:
  explicit Iterator(Value source);
  bool next(Value& out);
  const Value& source() const { return source_; }
  /// Items in all where that is known without walking.
  std::optional<size_t> length() const;

 private:
  Value source_;
  size_t at_ = 0;
  std::optional<size_t> object_length_;
};

bool is_iterable(const Value& value);
/// Python's len(); throws if there is none.
size_t length_of(const Value& value);

}  // namespace gristmill::jinja
