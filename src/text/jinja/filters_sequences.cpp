#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/markup.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

/// Walks over a list that was made beforehand, but looks like the generator that jinja2 returns.
Value generator_of(List items) {
  Value source(std::move(items));
  auto iterator = std::make_shared<Iterator>(source);
  return make_object<Generator>(source, [iterator](Value& out) { return iterator->next(out); });
}

/// What groupby makes: a pair that also has names.
class Group final : public Object {
 public:
  Group(Value grouper, Value list) : pair_(Value::tuple({std::move(grouper), std::move(list)})) { hold(pair_); }
  std::string_view type_name() const override { return "_GroupTuple"; }
  void append_text(std::string& out, size_t room, int level) const override { append_repr(out, pair_, room, level); }
  std::optional<size_t> length() override { return 2; }
  bool iterable() const override { return true; }
  bool subscriptable() const override { return true; }
  Value item(size_t index) override { return pair_.list()[index]; }
  Value attribute(std::string_view name) override {
    return name == "grouper" ? item(0) : name == "list" ? item(1) : Value::missing();
  }

 private:
  Value pair_;
};

/// The items of something that has an order both ways; throws for generators and the like.
List reversible_items(const Value& input, Budget& budget) {
  if (input.is(Kind::object) && !input.object().length()) fail("'", input.type_name(), "' object is not reversible");
  return to_list(input, budget);
}

Value first(Interpreter&, const Value& input, Arguments& arguments) {
  expect_none(arguments, "first");
  Iterator iterator(input);
  Value item;
  return iterator.next(item) ? item : Value::undefined_hint("No first item, sequence was empty.");
}

Value last(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "last");
  if (input.is_string() || input.is_sequence()) {
    Value item = item_at(input, -1, interpreter.budget());
    return item.is_missing() ? Value::undefined_hint("No last item, sequence was empty.") : item;
  }
  if (!is_iterable(input)) fail("'", input.type_name(), "' object is not reversible");
  const List items = reversible_items(input, interpreter.budget());
  return items.empty() ? Value::undefined_hint("No last item, sequence was empty.") : items.back();
}

Value reverse(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "reverse");
  if (input.is_string()) {
    return slice(input, Value(nullptr), Value(nullptr), Value(-1), interpreter.budget());
  }
  if (!is_iterable(input)) fail("argument must be iterable");
  const bool lazy = !input.is(Kind::object) || input.object().length();
  List items = to_list(input, interpreter.budget());
  std::reverse(items.begin(), items.end());
  return lazy ? generator_of(std::move(items)) : Value(std::move(items));
}

Value items(Interpreter&, const Value& input, Arguments& arguments) {
  expect_none(arguments, "items");
  if (input.is_undefined()) return generator_of({});
  if (!input.is_dict()) fail("Can only get item pairs from a mapping.");
  const Value view = make_object<DictView>(input, DictView::Part::items);
  auto iterator = std::make_shared<Iterator>(view);
  return make_object<Generator>(view, [iterator](Value& out) { return iterator->next(out); });
}

Value batch(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [count_value, fill] = bind(arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t count = integer_or(count_value, 0, "linecount");
  List batches, current;
  Iterator iterator(input);
  Value item;
  while (iterator.next(item)) {
    interpreter.budget().values(1);
    if (static_cast<int64_t>(current.size()) == count) batches.push_back(Value(std::exchange(current, {})));
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    const auto size = static_cast<int64_t>(current.size());
    if (!fill.is_missing() && !fill.is_none() && size < count) {
      interpreter.budget().items(static_cast<uint64_t>(count - size));
      current.resize(static_cast<size_t>(count), fill);
    }
    batches.push_back(Value(std::move(current)));
  }
  return generator_of(std::move(batches));
}

Value slices(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [count_value, fill] = bind(arguments, "slice", {"slices", "fill_with"}, 1);
  const int64_t count = integer_or(count_value, 0, "slices");
  const List all = to_list(input, interpreter.budget());
  if (count == 0) fail("integer division or modulo by zero");
  List out;
  if (count < 0) return generator_of({});
  interpreter.budget().values(static_cast<uint64_t>(count));
  const size_t wanted = static_cast<size_t>(count);
  size_t at = 0;
  for (size_t i = 0; i < wanted; ++i) {
    const bool has_extra = i < all.size() % wanted;
    const size_t size = all.size() / wanted + (has_extra ? 1 : 0);
    List part(all.begin() + static_cast<std::ptrdiff_t>(at), all.begin() + static_cast<std::ptrdiff_t>(at + size));
    if (!has_extra && !fill.is_missing() && !fill.is_none()) part.push_back(fill);
    out.push_back(Value(std::move(part)));
    at += size;
  }
  return generator_of(std::move(out));
}

// ---- Sorting and grouping
// --------------------------------------------------------------------------------------------

Value sort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [reverse_value, case_sensitive, attribute] =
      bind(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const bool ignore_case = !truth_or(case_sensitive, false);
  std::vector<AttributePath> paths;
  if (attribute.is_string()) {
    std::string_view rest = attribute.string();
    while (true) {
      const size_t comma = std::min(rest.find(','), rest.size());
      paths.emplace_back(Value(rest.substr(0, comma)), Value::missing(), ignore_case);
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(attribute, Value::missing(), ignore_case);
  }
  const auto key = [&](const Value& item) {
    // A list even for one path: lists ask for equality first, so that equal items need no order.
    interpreter.budget().items(paths.size());
    List keys;
    for (const AttributePath& path : paths) keys.push_back(path(interpreter, item));
    return Value(std::move(keys));
  };
  return Value(sorted(interpreter, to_list(input, interpreter.budget()), key, truth_or(reverse_value, false)));
}

Value dictsort(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [case_sensitive, by, reverse_value] = bind(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string part = by.is_string() ? by.string() : "key";
  if (part != "key" && part != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) fail(input.undefined_message());
  if (!input.is_dict()) fail("'", input.type_name(), "' object has no attribute 'items'");
  const AttributePath path(Value(part == "key" ? 0 : 1), Value::missing(), !truth_or(case_sensitive, false));
  const Value pairs = make_object<DictView>(input, DictView::Part::items);
  return Value(sorted(
      interpreter, to_list(pairs, interpreter.budget()), [&](const Value& pair) { return path(interpreter, pair); },
      truth_or(reverse_value, false)));
}

Value groupby(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [attribute, fallback, case_sensitive] =
      bind(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool ignore_case = !truth_or(case_sensitive, false);
  const AttributePath path(attribute, fallback, ignore_case), real_path(attribute, fallback, false);
  Budget& budget = interpreter.budget();
  const List sorted_items =
      sorted(interpreter, to_list(input, budget), [&](const Value& item) { return path(interpreter, item); }, false);
  List groups;
  for (size_t start = 0, end = 0; start < sorted_items.size(); start = end) {
    const Value key = path(interpreter, sorted_items[start]);
    List members;
    for (end = start; end < sorted_items.size() && equals(path(interpreter, sorted_items[end]), key, budget); ++end) {
      budget.items(1);
      members.push_back(sorted_items[end]);
    }
    if (end == start) end = start + 1;  // a key that is not even equal to itself
    const Value shown = ignore_case ? real_path(interpreter, sorted_items[start]) : key;
    groups.push_back(make_object<Group>(shown, Value(std::move(members))));
  }
  return Value(std::move(groups));
}

/// min and max.
template <bool smallest>
Value extreme(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [case_sensitive, attribute] = bind(arguments, smallest ? "min" : "max", {"case_sensitive", "attribute"});
  const AttributePath path(attribute, Value::missing(), !truth_or(case_sensitive, false));
  Iterator iterator(input);
  Value best;
  if (!iterator.next(best)) return Value::undefined_hint("No aggregated item, sequence was empty.");
  Value best_key = path(interpreter, best);
  Value item;
  while (iterator.next(item)) {
    interpreter.budget().steps(1);
    Value key = path(interpreter, item);
    const auto by =
        smallest ? order(key, best_key, "<", interpreter.budget()) : order(best_key, key, "<", interpreter.budget());
    if (by < 0) {
      best = std::move(item);
      best_key = std::move(key);
    }
  }
  return best;
}

Value sum(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [attribute, start] = bind(arguments, "sum", {"attribute", "start"});
  const AttributePath path(attribute, Value::missing(), false);
  Value total = start.is_missing() ? Value(0) : start;
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Iterator iterator(input);
  Value item;
  while (iterator.next(item)) {
    interpreter.budget().steps(1);
    total = add(total, path(interpreter, item), interpreter.budget());
  }
  return total;
}

Value unique(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [case_sensitive, attribute] = bind(arguments, "unique", {"case_sensitive", "attribute"});
  struct State {
    AttributePath path;
    Iterator iterator;
    Dict seen;
  };
  auto state = std::make_shared<State>(
      State{{attribute, Value::missing(), !truth_or(case_sensitive, false)}, Iterator(input), {}});
  return make_object<Generator>(input, [state, &interpreter](Value& out) {
    while (state->iterator.next(out)) {
      const Value key = state->path(interpreter, out);
      interpreter.budget().values(1);
      charge_key(key, interpreter.budget());
      if (state->seen.find(key)) continue;
      state->seen.set(key, Value(true));
      return true;
    }
    return false;
  });
}

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  static constexpr FilterEntry filters[] = {
      {"batch", batch},     {"dictsort", dictsort}, {"first", first},        {"groupby", groupby},
      {"items", items},     {"last", last},         {"max", extreme<false>}, {"min", extreme<true>},
      {"reverse", reverse}, {"slice", slices},      {"sort", sort},          {"sum", sum},
      {"unique", unique},
  };
  return filters;
}

}  // namespace gristmill::jinja
