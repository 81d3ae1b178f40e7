#include "text/jinja/value.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/object.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

class HostFunction final : public Object {
 public:
  HostFunction(std::string name, std::function<Value(const Arguments&)> body)
      : name_(std::move(name)), body_(std::move(body)) {}
  std::string_view type_name() const override { return "function"; }
  void append_text(std::string& out, size_t, int) const override { out += cat("<function ", name_, ">"); }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override { return body_(arguments); }

 private:
  std::string name_;
  std::function<Value(const Arguments&)> body_;
};

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return "object";
  }
  return "?";
}

}  // namespace

int depth_around(int inner) {
  if (inner >= max_value_depth) {
    throw TemplateError(Fault::limit, cat("values are nested deeper than ", max_value_depth, " levels"));
  }
  return inner + 1;
}

Value Value::adopt(Kind kind, Shared* shared) {
  Value value;
  value.kind_ = kind;
  value.data_.shared = shared;
  shared->references.store(1, std::memory_order_relaxed);
  return value;
}

Value::Value(std::string text) : Value(adopt(Kind::string, new SharedText(std::move(text)))) {}
Value::Value(std::string_view text) : Value(std::string(text)) {}
Value::Value(const char* text) : Value(std::string(text)) {}
Value::Value(List items) : Value(adopt(Kind::list, new SharedList(std::move(items)))) {}
Value::Value(Dict items) : Value(adopt(Kind::dict, new SharedDict(std::move(items)))) {}

Value::Value(const Ref<Object>& object) : kind_(Kind::object) {
  data_.shared = object.get();
  data_.shared->references.fetch_add(1, std::memory_order_relaxed);
}

Value Value::tuple(List items) {
  return adopt(Kind::tuple, new SharedList(std::move(items)));
}

Value Value::missing() {
  Value value;
  value.kind_ = Kind::missing;
  return value;
}

Value Value::markup(std::string text) {
  Value value(std::move(text));
  value.mark_ = 1;
  return value;
}

Value Value::undefined_variable(const Value& name) {
  Value value(name);
  value.kind_ = Kind::undefined;
  value.mark_ = static_cast<uint8_t>(Absence::variable);
  return value;
}

Value Value::undefined_hint(std::string message) {
  Value value(std::move(message));
  value.kind_ = Kind::undefined;
  value.mark_ = static_cast<uint8_t>(Absence::hint);
  return value;
}

Value Value::undefined_member(const Value& owner, const Value& name) {
  if (owner.is(Kind::object)) {
    return undefined_hint(cat("'", owner.type_name(), " object' has no attribute ", repr(name)));
  }
  const bool attribute = name.is_string();
  Value value = attribute ? name : Value(repr(name));
  value.kind_ = Kind::undefined;
  value.mark_ = static_cast<uint8_t>(attribute ? Absence::attribute : Absence::element);
  value.owner_ = owner.kind();
  return value;
}

std::string Value::undefined_message() const {
  if (data_.shared == nullptr) return "the value is undefined";
  const std::string& text = string();
  const std::string owner = owner_ == Kind::none ? "None" : cat(name_of(owner_), " object");
  switch (static_cast<Absence>(mark_)) {
    case Absence::variable:
      return cat(quoted(text), " is undefined");
    case Absence::attribute:
      return cat("'", owner, "' has no attribute ", quoted(text));
    case Absence::element:
      return cat(owner, " has no element ", text);
    case Absence::hint:
      return text;
  }
  return text;
}

const List& Value::list() const {
  return static_cast<const SharedList*>(data_.shared)->items;
}
const Dict& Value::dict() const {
  return static_cast<const SharedDict*>(data_.shared)->items;
}
Object& Value::object() const {
  return *static_cast<Object*>(data_.shared);
}

size_t Value::text_length() const {
  const auto& shared = *static_cast<const SharedText*>(data_.shared);
  int64_t known = shared.code_points.load(std::memory_order_relaxed);
  if (known < 0) {
    known = static_cast<int64_t>(unicode::count(shared.text));
    shared.code_points.store(known, std::memory_order_relaxed);
  }
  return static_cast<size_t>(known);
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::missing:
    case Kind::none:
      return true;
    case Kind::boolean:
      return data_.boolean == other.data_.boolean;
    case Kind::integer:
      return data_.integer == other.data_.integer;
    case Kind::real:
      return false;
    default:
      return data_.shared == other.data_.shared;
  }
}

std::string_view Value::type_name() const {
  return kind_ == Kind::object ? object().type_name() : name_of(kind_);
}

SharedList::SharedList(List value) : items(std::move(value)) {
  int inner = 0;
  for (const Value& item : items) inner = std::max(inner, item.depth());
  depth = depth_around(inner);
}

SharedDict::SharedDict(Dict value) : items(std::move(value)) {
  int inner = 0;
  for (const auto& entry : items) inner = std::max({inner, entry.key.depth(), entry.value.depth()});
  depth = depth_around(inner);
}

Value function(std::string name, std::function<Value(const Arguments&)> body) {
  return make_object<HostFunction>(std::move(name), std::move(body));
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean();
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::string:
      return !value.string().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.list().empty();
    case Kind::dict:
      return !value.dict().empty();
    case Kind::object:
      return value.object().truth();
  }
  return false;
}

}  // namespace gristmill::jinja
