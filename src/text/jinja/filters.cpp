#include "text/jinja/filters.h"

#include <algorithm>
#include <unordered_map>

#include "text/jinja/compare.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {

FilterFunction find_filter(std::string_view name) {
  static const auto filters = [] {
    std::unordered_map<std::string_view, FilterFunction> all;
    for (const auto group : {value_filters(), text_filters(), sequence_filters(), selection_filters()}) {
      all.insert(group.begin(), group.end());
    }
    return all;
  }();
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

AttributePath::AttributePath(const Value& attribute, Value fallback, bool ignore_case)
    : fallback_(std::move(fallback)), ignore_case_(ignore_case) {
  if (attribute.is_missing() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    steps_.push_back(attribute);
    return;
  }
  std::string_view path = attribute.string();
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view step = path.substr(0, dot);
    const bool digits = step.size() < 19 && step.find_first_not_of("0123456789") == step.npos;
    const auto number = digits ? parse_integer(step, 10) : std::nullopt;
    steps_.push_back(number ? Value(*number) : Value(step));
    if (dot == path.size()) return;
    path.remove_prefix(dot + 1);
  }
}

Value AttributePath::operator()(Interpreter& interpreter, const Value& value) const {
  Value result = value;
  for (const Value& step : steps_) {
    interpreter.budget().steps(1);
    result = interpreter.get_item(result, step);
    if (result.is_undefined() && !fallback_.is_missing() && !fallback_.is_none()) result = fallback_;
  }
  if (!ignore_case_ || !result.is_string()) return result;
  interpreter.budget().text(result.string().size());
  return Value(unicode::lower(result.string()));
}

List sorted(Interpreter& interpreter, List items, const std::function<Value(const Value&)>& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  interpreter.budget().items(items.size());
  for (Value& item : items) {
    Value item_key = key(item);
    keyed.emplace_back(std::move(item_key), std::move(item));
  }
  Budget& budget = interpreter.budget();
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    budget.steps(1);
    return order(reverse ? b.first : a.first, reverse ? a.first : b.first, "<", budget) < 0;
  });
  List out;
  out.reserve(keyed.size());
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

}  // namespace gristmill::jinja
