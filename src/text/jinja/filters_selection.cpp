#include "text/jinja/filters.h"
#include "text/jinja/object.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

/// Walks over `input` from the first item asked for on; an input that is false (none, 0, undefined) has no items.
class LazySource {
 public:
  explicit LazySource(Value input) : input_(std::move(input)) {}
  bool next(Value& out) {
    if (!iterator_) {
      if (!truth(input_)) return false;
      iterator_.emplace(input_);
    }
    return iterator_->next(out);
  }

 private:
  Value input_;
  std::optional<Iterator> iterator_;
};

/// The first positional argument, which is the name of a filter or test, taken off the others.
Value take_first(Arguments& arguments) {
  Value first = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
    if (at->first != name) continue;
    Value value = std::move(at->second);
    arguments.named.erase(at);
    return value;
  }
  return std::nullopt;
}

Value map_attribute(Interpreter& interpreter, const Value& input, Arguments& arguments, const Value& attribute) {
  const Value fallback = take_named(arguments, "default").value_or(Value::missing());
  if (!arguments.named.empty()) fail("Unexpected keyword argument ", quoted(arguments.named[0].first));
  struct State {
    LazySource source;
    AttributePath path;
  };
  auto state = std::make_shared<State>(State{LazySource(input), AttributePath(attribute, fallback, false)});
  return make_object<Generator>(input, [state, &interpreter](Value& out) {
    interpreter.budget().steps(1);
    Value item;
    if (!state->source.next(item)) return false;
    out = state->path(interpreter, item);
    return true;
  });
}

Value map(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (arguments.positional.empty()) {
    if (const auto attribute = take_named(arguments, "attribute")) {
      return map_attribute(interpreter, input, arguments, *attribute);
    }
    fail("map requires a filter argument");
  }
  struct State {
    LazySource source;
    Value name;
    Arguments arguments;
  };
  const Value name = take_first(arguments);
  auto state = std::make_shared<State>(State{LazySource(input), name, std::move(arguments)});
  return make_object<Generator>(input, [state, &interpreter](Value& out) {
    interpreter.budget().steps(1 + state->arguments.positional.size() + state->arguments.named.size());
    Value item;
    if (!state->source.next(item)) return false;
    const FilterFunction filter = state->name.is_string() ? find_filter(state->name.string()) : nullptr;
    if (!filter) fail("No filter named ", repr(state->name), ".");
    Arguments copy = state->arguments;
    out = filter(interpreter, item, copy);
    return true;
  });
}

/// select, reject, selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Value select(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (by_attribute && arguments.positional.empty()) fail("Missing parameter for attribute name");
  const Value attribute = by_attribute ? take_first(arguments) : Value::missing();
  const bool has_test = !arguments.positional.empty();
  struct State {
    LazySource source;
    AttributePath path;
    Value test;
    Arguments arguments;
  };
  const Value test = has_test ? take_first(arguments) : Value::missing();
  auto state = std::make_shared<State>(
      State{LazySource(input), AttributePath(attribute, Value::missing(), false), test, std::move(arguments)});
  return make_object<Generator>(input, [state, &interpreter](Value& out) {
    while (state->source.next(out)) {
      interpreter.budget().steps(1 + state->arguments.positional.size() + state->arguments.named.size());
      const Value subject = state->path(interpreter, out);
      bool passes = false;
      if (state->test.is_missing()) {
        passes = truth(subject);
      } else {
        const TestFunction function = state->test.is_string() ? find_test(state->test.string()) : nullptr;
        if (!function) fail("No test named ", repr(state->test), ".");
        Arguments copy = state->arguments;
        passes = function(interpreter, subject, copy);
      }
      if (passes == wanted) return true;
    }
    return false;
  });
}

}  // namespace

std::span<const FilterEntry> selection_filters() {
  static constexpr FilterEntry filters[] = {
      {"map", map},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
  };
  return filters;
}

}  // namespace gristmill::jinja
