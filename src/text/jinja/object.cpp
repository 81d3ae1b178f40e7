#include "text/jinja/object.h"

#include "text/jinja/error.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {

void Object::append_text(std::string& out, size_t, int) const {
  out += cat("<", type_name(), " object>");
}

Value Object::item(size_t) {
  return Value::missing();
}
bool Object::advance(Value&) {
  return false;
}
Value Object::attribute(std::string_view) {
  return Value::missing();
}
Value Object::call(Interpreter&, Arguments&) {
  fail("'", type_name(), "' object is not callable");
}

void Namespace::append_text(std::string& out, size_t room, int level) const {
  const size_t start = out.size();
  out += "<Namespace {";
  for (size_t i = 0; i < attributes_.size(); ++i) {
    if (i > 0) out += ", ";
    const size_t used = out.size() - start;
    append_repr(out, attributes_[i].key, room > used ? room - used : 0);
    out += ": ";
    append_repr(out, attributes_[i].value, room > used ? room - used : 0, level);
  }
  out += "}>";
}

Value Namespace::attribute(std::string_view name) {
  const Value* found = attributes_.find(name);
  return found ? *found : Value::missing();
}

void Namespace::set(const Value& name, Value value) {
  if (name.is_string() && name.string().starts_with('_')) {
    fail("a namespace cannot hold the attribute ", repr(name), ": names with an underscore in front are refused");
  }
  hold(value);
  attributes_.set(name, std::move(value));
}

void Range::append_text(std::string& out, size_t, int) const {
  out += step_ == 1 ? cat("range(", start_, ", ", stop_, ")") : cat("range(", start_, ", ", stop_, ", ", step_, ")");
}

Value Range::attribute(std::string_view name) {
  if (name == "start") return start_;
  if (name == "stop") return stop_;
  if (name == "step") return step_;
  return Value::missing();
}

std::string_view DictView::type_name() const {
  switch (part_) {
    case Part::keys:
      return "dict_keys";
    case Part::values:
      return "dict_values";
    case Part::items:
      return "dict_items";
  }
  return "?";
}

void DictView::append_text(std::string& out, size_t room, int level) const {
  const size_t start = out.size();
  out += type_name();
  out += "([";
  for (size_t i = 0; i < dict().size(); ++i) {
    if (i > 0) out += ", ";
    const size_t used = out.size() - start;
    if (part_ == Part::items) out += '(';
    if (part_ != Part::values) append_repr(out, dict()[i].key, room > used ? room - used : 0, level);
    if (part_ == Part::items) out += ", ";
    if (part_ != Part::keys) append_repr(out, dict()[i].value, room > used ? room - used : 0, level);
    if (part_ == Part::items) out += ')';
  }
  out += "])";
}

Value DictView::item(size_t index) {
  const Dict::Entry& entry = dict()[index];
  switch (part_) {
    case Part::keys:
      return entry.key;
    case Part::values:
      return entry.value;
    case Part::items:
      break;
  }
  List pair;
  pair.reserve(2);
  pair.push_back(entry.key);
  pair.push_back(entry.value);
  return Value::tuple(std::move(pair));
}

bool Generator::advance(Value& out) {
  if (!next_) return false;
  if (next_(out)) return true;
  next_ = nullptr;
  return false;
}

Iterator::Iterator(Value source) : source_(std::move(source)) {
  if (!is_iterable(source_)) fail("'", source_.type_name(), "' object is not iterable");
  if (source_.is(Kind::object)) object_length_ = source_.object().length();
}

bool Iterator::next(Value& out) {
  switch (source_.kind()) {
    case Kind::list:
    case Kind::tuple:
      if (at_ >= source_.list().size()) return false;
      out = source_.list()[at_++];
      return true;
    case Kind::dict:
      if (at_ >= source_.dict().size()) return false;
      out = source_.dict()[at_++].key;
      return true;
    case Kind::string: {
      const std::string& text = source_.string();
      if (at_ >= text.size()) return false;
      const size_t start = at_;
      unicode::decode(text, at_);
      out = Value(text.substr(start, at_ - start));
      return true;
    }
    case Kind::object:
      if (!object_length_) return source_.object().advance(out);
      if (at_ >= *object_length_) return false;
      out = source_.object().item(at_++);
      return true;
    default:
      return false;
  }
}

std::optional<size_t> Iterator::length() const {
  if (source_.is(Kind::object)) return object_length_;
  return length_of(source_);
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return true;
    case Kind::object:
      return value.object().iterable();
    default:
      return false;
  }
}

size_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.text_length();
    case Kind::list:
    case Kind::tuple:
      return value.list().size();
    case Kind::dict:
      return value.dict().size();
    case Kind::object:
      if (const auto length = value.object().length()) return *length;
      break;
    default:
      break;
  }
  fail("object of type '", value.type_name(), "' has no len()");
}

}  // namespace gristmill::jinja
