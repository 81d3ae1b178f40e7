#pragma once
#include <optional>

#include "text/jinja/interpreter.h"
#include "text/jinja/object.h"

namespace gristmill::jinja {

/// The items of a for loop: those of its source that pass its condition, tested one by one as they are asked for.
class LoopItems {
 public:
  LoopItems(Interpreter& interpreter, const Loop& node, Ref<Frame> home, const Value& source)
      : interpreter_(interpreter), node_(node), home_(std::move(home)), iterator_(source) {}
  bool next(Value& out);
  /// Known beforehand only without a condition.
  std::optional<size_t> length() const { return node_.test ? std::nullopt : iterator_.length(); }

 private:
  Interpreter& interpreter_;
  const Loop& node_;
  Ref<Frame> home_;
  Iterator iterator_;
};

/// The variable `loop`.
class LoopObject final : public Object {
 public:
  LoopObject(Interpreter& interpreter, const Loop& node, Ref<Frame> home, const Value& source, int level);
  /// Moves on to the next round and gives its item; false at the end.
  bool next(Value& out);

  std::string_view type_name() const override { return "LoopContext"; }
  void append_text(std::string& out, size_t room, int level) const override;
  bool truth() override { return total() > 0; }
  std::optional<size_t> length() override { return total(); }
  Value attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;
  void clear() override { last_seen_.reset(); }

  /// The methods loop.cycle and loop.changed.
  Value cycle(const Arguments& arguments) const;
  Value changed(const Arguments& arguments);

 private:
  size_t total() const;
  bool peek();

  Interpreter& interpreter_;
  const Loop& node_;
  Ref<Frame> home_;
  mutable LoopItems items_;
  int level_;
  int64_t index0_ = -1;
  Value before_, current_;
  mutable List ahead_;  ///< items that were asked for early, the next one last
  mutable std::optional<size_t> total_;
  std::optional<Value> last_seen_;
};

}  // namespace gristmill::jinja
