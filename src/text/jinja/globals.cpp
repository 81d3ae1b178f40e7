#include <ctime>
#include <limits>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

using GlobalFunction = Value (*)(Interpreter&, Arguments&);

class Builtin final : public Object {
 public:
  Builtin(std::string_view name, GlobalFunction function) : name_(name), function_(function) {}
  std::string_view type_name() const override { return "function"; }
  void append_text(std::string& out, size_t, int) const override { out += cat("<function ", name_, ">"); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override { return function_(interpreter, arguments); }
  Value attribute(std::string_view name) override;

 private:
  std::string_view name_;
  GlobalFunction function_;
};

Value range(Interpreter& interpreter, Arguments& arguments) {
  const auto [first, second, third] = bind(arguments, "range", {"start", "stop", "step"}, 1);
  const bool only_stop = second.is_missing();
  const int64_t start = only_stop ? 0 : integer_or(first, 0, "range() argument");
  const int64_t stop = integer_or(only_stop ? first : second, 0, "range() argument");
  const int64_t step = integer_or(third, 1, "range() argument");
  if (step == 0) fail("range() arg 3 must not be zero");
  // Unsigned differences cannot overflow.
  const bool any = step > 0 ? start < stop : start > stop;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t size = any ? (distance - 1) / stride + 1 : 0;
  const int64_t most = interpreter.budget().limits().range_items;
  if (size > static_cast<uint64_t>(most)) {
    throw TemplateError(Fault::limit, cat("Range too big. The sandbox blocks ranges larger than ", most, " items"));
  }
  return make_object<Range>(start, stop, step, size);
}

/// dict(mapping or pairs, name=value...)
Dict dict_of(Interpreter& interpreter, Arguments& arguments, std::string_view function) {
  if (arguments.positional.size() > 1) fail(function, " expected at most 1 argument");
  Dict dict;
  if (!arguments.positional.empty()) dict = dict_from(arguments.positional[0], interpreter.budget());
  for (auto& [name, value] : arguments.named) dict.set(name, std::move(value));
  return dict;
}

Value make_dict(Interpreter& interpreter, Arguments& arguments) {
  return Value(dict_of(interpreter, arguments, "dict"));
}

Value from_keys(Interpreter& interpreter, Arguments& arguments) {
  const auto [keys, value] = bind(arguments, "fromkeys", {"iterable", "value"}, 1);
  return dict_from_keys(keys, value.is_missing() ? Value(nullptr) : value, interpreter.budget());
}

Value make_namespace(Interpreter& interpreter, Arguments& arguments) {
  const Ref<Namespace> space(new Namespace);
  interpreter.keep(Ref<Object>(space.get()));
  const Dict attributes = dict_of(interpreter, arguments, "namespace");
  for (const auto& entry : attributes) space->set(entry.key, entry.value);
  return Value(Ref<Object>(space.get()));
}

/// Gives its items in turn, for ever.
class Cycler final : public Object {
 public:
  explicit Cycler(List items) : items_(Value::tuple(std::move(items))) { hold(items_); }
  std::string_view type_name() const override { return "Cycler"; }
  Value current() const { return items_.list()[at_]; }
  Value next() {
    const Value item = current();
    at_ = (at_ + 1) % items_.list().size();
    return item;
  }
  void reset() { at_ = 0; }
  Value attribute(std::string_view name) override;

 private:
  Value items_;
  size_t at_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(Ref<Object> cycler, bool resets) : cycler_(std::move(cycler)), resets_(resets) { hold(Value(cycler_)); }
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override {
    expect_none(arguments, resets_ ? "reset" : "next");
    auto& cycler = static_cast<Cycler&>(*cycler_);
    if (!resets_) return cycler.next();
    cycler.reset();
    return nullptr;
  }

 private:
  Ref<Object> cycler_;
  bool resets_;
};

Value Cycler::attribute(std::string_view name) {
  if (name == "current") return current();
  if (name == "items") return items_;
  if (name == "pos") return at_;
  if (name == "next" || name == "reset") return make_object<CyclerMethod>(Ref<Object>(this), name == "reset");
  return Value::missing();
}

Value make_cycler(Interpreter&, Arguments& arguments) {
  if (!arguments.named.empty()) fail("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  return make_object<Cycler>(std::move(arguments.positional));
}

/// Gives nothing the first time, then its separator.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) { hold(separator_); }
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override {
    expect_none(arguments, "joiner");
    return std::exchange(used_, true) ? separator_ : Value("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(Interpreter&, Arguments& arguments) {
  const auto [separator] = bind(arguments, "joiner", {"sep"});
  return make_object<Joiner>(separator.is_missing() ? Value(", ") : separator);
}

Value raise_exception(Interpreter& interpreter, Arguments& arguments) {
  const auto [message] = bind(arguments, "raise_exception", {"message"}, 1);
  throw TemplateError(Fault::raised, interpreter.text_of(message).string());
}

Value strftime_now(Interpreter& interpreter, Arguments& arguments) {
  const auto [format] = bind(arguments, "strftime_now", {"format"}, 1);
  if (!format.is_string()) fail("strftime() argument must be str, not ", format.type_name());
  std::tm now{};
  if (interpreter.options().now) {
    now = interpreter.options().now();
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &now);
  }
  // A mark in front tells an empty result from one that did not fit.
  const std::string marked_format = "|" + format.string();
  if (marked_format.find('\0') != marked_format.npos) fail("embedded null character");
  std::string text(256 + 16 * marked_format.size(), '\0');
  interpreter.budget().text(text.size());
  const size_t size = std::strftime(text.data(), text.size(), marked_format.c_str(), &now);
  if (size == 0) fail("the date of strftime_now() is too long");
  return Value(text.substr(1, size - 1));
}

Value Builtin::attribute(std::string_view name) {
  if (function_ == make_dict && name == "fromkeys") return make_object<Builtin>("fromkeys", from_keys);
  return Value::missing();
}

}  // namespace

const Dict& globals() {
  static const Dict all = [] {
    Dict dict;
    const auto add = [&](std::string_view name, GlobalFunction function) {
      dict.set(Value(name), make_object<Builtin>(name, function));
    };
    add("range", range);
    add("dict", make_dict);
    add("namespace", make_namespace);
    add("cycler", make_cycler);
    add("joiner", make_joiner);
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    return dict;
  }();
  return all;
}

}  // namespace gristmill::jinja
