#include "text/jinja/loop.h"

#include <algorithm>

#include "text/jinja/compare.h"

namespace gristmill::jinja {
namespace {

/// loop.cycle or loop.changed, taken off the loop.
class LoopMethod final : public Object {
 public:
  LoopMethod(Ref<Object> loop, bool cycles) : loop_(std::move(loop)), cycles_(cycles) { hold(Value(loop_)); }
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override {
    auto& loop = static_cast<LoopObject&>(*loop_);
    return cycles_ ? loop.cycle(arguments) : loop.changed(arguments);
  }

 private:
  Ref<Object> loop_;
  bool cycles_;
};

}  // namespace

bool LoopItems::next(Value& out) {
  while (iterator_.next(out)) {
    interpreter_.budget().steps(1);
    if (!node_.test || interpreter_.passes_test(node_, home_, out)) return true;
  }
  return false;
}

LoopObject::LoopObject(Interpreter& interpreter, const Loop& node, const Ref<Frame>& home, const Value& source,
                       int level)
    : interpreter_(interpreter), node_(node), home_(home), items_(interpreter, node, home, source), level_(level) {
  hold(source);
}

bool LoopObject::next(Value& out) {
  if (!peek()) return false;
  out = std::move(ahead_.back());
  ahead_.pop_back();
  ++index0_;
  before_ = std::move(current_);
  current_ = out;
  return true;
}

bool LoopObject::peek() {
  if (!ahead_.empty()) return true;
  if (total_ && static_cast<size_t>(index0_ + 1) >= *total_) return false;
  Value item;
  if (!items_.next(item)) return false;
  ahead_.push_back(std::move(item));
  return true;
}

size_t LoopObject::total() const {
  if (total_) return *total_;
  total_ = items_.length();
  if (total_) return *total_;
  // As in jinja2, a source of unknown length is walked to its end.
  List rest;
  Value item;
  while (items_.next(item)) {
    interpreter_.budget().values(1);
    rest.push_back(std::move(item));
  }
  std::reverse(rest.begin(), rest.end());
  rest.insert(rest.end(), ahead_.begin(), ahead_.end());
  ahead_ = std::move(rest);
  total_ = ahead_.size() + static_cast<size_t>(index0_ + 1);
  return *total_;
}

void LoopObject::append_text(std::string& out, size_t, int) const {
  out += cat("<LoopContext ", index0_ + 1, "/", total(), ">");
}

Value LoopObject::attribute(std::string_view name) {
  if (name == "index0") return index0_;
  if (name == "index") return index0_ + 1;
  if (name == "first") return index0_ == 0;
  if (name == "last") return !peek();
  if (name == "length") return total();
  if (name == "revindex0") return static_cast<int64_t>(total()) - index0_ - 1;
  if (name == "revindex") return static_cast<int64_t>(total()) - index0_;
  if (name == "depth") return level_ + 1;
  if (name == "depth0") return level_;
  if (name == "previtem") return index0_ == 0 ? Value::undefined_hint("there is no previous item") : before_;
  if (name == "nextitem") return peek() ? ahead_.back() : Value::undefined_hint("there is no next item");
  if (name == "cycle" || name == "changed") return make_object<LoopMethod>(Ref<Object>(this), name == "cycle");
  return Value::missing();
}

Value LoopObject::cycle(const Arguments& arguments) const {
  if (!arguments.named.empty()) fail("loop.cycle() takes no keyword arguments");
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

Value LoopObject::changed(const Arguments& arguments) {
  if (!arguments.named.empty()) fail("loop.changed() takes no keyword arguments");
  Value seen = Value::tuple(arguments.positional);
  if (last_seen_ && equals(*last_seen_, seen, interpreter_.budget())) return false;
  hold(seen);
  if (!last_seen_) interpreter_.keep(Ref<Object>(this));
  last_seen_ = std::move(seen);
  return true;
}

Value LoopObject::call(Interpreter& interpreter, Arguments& arguments) {
  if (!node_.recursive) fail("the loop must have the 'recursive' marker to be called recursively");
  const auto [source] = bind(arguments, "loop", {"iterable"}, 1);
  return interpreter.run_recursive_loop(node_, home_, source, level_ + 1);
}

}  // namespace gristmill::jinja
