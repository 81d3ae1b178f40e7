#include "text/chat_messages.h"

#include <boost/json.hpp>

#include "base/error.h"

namespace gristmill::text {
namespace {

namespace json = boost::json;

constexpr int most_nesting = 100;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw RequestError("messages", cat(where, ": ", what));
}

std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}
std::string_view view(json::string_view text) {
  return {text.data(), text.size()};
}

jinja::Value convert(const json::value& value, int level) {
  if (level > most_nesting) refuse("messages", cat("lists and objects are nested more than ", most_nesting, " deep"));
  switch (value.kind()) {
    case json::kind::null:
      return nullptr;
    case json::kind::bool_:
      return value.get_bool();
    case json::kind::int64:
      return value.get_int64();
    case json::kind::uint64: {
      const uint64_t number = value.get_uint64();
      if (number <= INT64_MAX) return static_cast<int64_t>(number);
      return static_cast<double>(number);
    }
    case json::kind::double_:
      return value.get_double();
    case json::kind::string:
      return view(value.get_string());
    case json::kind::array: {
      jinja::List list;
      list.reserve(value.get_array().size());
      for (const json::value& item : value.get_array()) list.push_back(convert(item, level + 1));
      return list;
    }
    case json::kind::object: {
      jinja::Dict dict;
      for (const auto& [key, item] : value.get_object()) dict.set(view(key), convert(item, level + 1));
      return dict;
    }
  }
  return nullptr;
}

// The text of a content part, which clients tag in several ways.
std::string_view text_of_part(const json::value& part, const std::string& where) {
  if (part.is_string()) return view(part.get_string());
  if (!part.is_object()) refuse(where, "is neither an object nor a string");
  const json::value* type = part.get_object().if_contains("type");
  if (type == nullptr || !type->is_string()) refuse(where, "has no type");
  const std::string_view name = view(type->get_string());
  const char* field = nullptr;
  if (name == "text" || name == "input_text" || name == "output_text") field = "text";
  if (name == "refusal") field = "refusal";
  if (name == "thinking") field = "thinking";
  if (field == nullptr) refuse(where, cat("content of type \"", name, "\" is not supported by this model; text is"));
  const json::value* text = part.get_object().if_contains(field);
  if (text == nullptr || !text->is_string()) refuse(where, cat("has no string \"", field, "\""));
  return view(text->get_string());
}

jinja::Value text_part(std::string_view text) {
  return jinja::Dict{{"type", "text"}, {"text", text}};
}

jinja::Value convert_content(const json::value* content, ContentSupport support, const std::string& where) {
  if (content == nullptr || content->is_null()) return "";
  if (content->is_string()) {
    const std::string_view text = view(content->get_string());
    if (support.strings) return text;
    return jinja::List{text_part(text)};
  }
  if (!content->is_array()) refuse(where, "is neither a string nor a list of parts");
  jinja::List parts;
  std::string joined;
  size_t number = 0;
  for (const json::value& part : content->get_array()) {
    const std::string_view text = text_of_part(part, cat(where, '[', number, ']'));
    if (support.lists) {
      parts.push_back(text_part(text));
    } else {
      if (number > 0) joined += '\n';
      joined += text;
    }
    ++number;
  }
  if (support.lists) return parts;
  return joined;
}

// The wire form of arguments is a string of JSON; templates iterate over a mapping.
jinja::Value convert_arguments(const json::value* arguments, const std::string& where) {
  if (arguments == nullptr || arguments->is_null()) return jinja::Dict();
  if (arguments->is_object()) return convert(*arguments, 3);
  if (!arguments->is_string()) refuse(where, "is neither a string nor an object");
  const std::string_view text = view(arguments->get_string());
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return jinja::Dict();
  json::error_code error;
  const json::value parsed = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) refuse(where, cat("is not valid JSON: ", error.message()));
  if (parsed.is_null()) return jinja::Dict();
  if (!parsed.is_object()) refuse(where, "is JSON, but not an object");
  return convert(parsed, 3);
}

jinja::Value convert_call(const json::value& call, const std::string& where) {
  if (!call.is_object()) refuse(where, "is not an object");
  jinja::Dict dict;
  for (const auto& [key, value] : call.get_object()) {
    if (view(key) != "function") {
      if (!value.is_null()) dict.set(view(key), convert(value, 3));
      continue;
    }
    if (!value.is_object()) refuse(cat(where, ".function"), "is not an object");
    const json::object& function = value.get_object();
    jinja::Dict converted;
    for (const auto& [name, field] : function) {
      if (view(name) != "arguments" && !field.is_null()) converted.set(view(name), convert(field, 4));
    }
    converted.set("arguments", convert_arguments(function.if_contains("arguments"), cat(where, ".function.arguments")));
    dict.set("function", std::move(converted));
  }
  return dict;
}

jinja::Value convert_message(const json::value& message, ContentSupport support, const std::string& where) {
  if (!message.is_object()) refuse(where, "is not an object");
  const json::object& object = message.get_object();
  const json::value* role = object.if_contains("role");
  if (role == nullptr || !role->is_string()) refuse(cat(where, ".role"), "a string is required");
  jinja::Dict dict;
  dict.set("role", view(role->get_string()));
  dict.set("content", convert_content(object.if_contains("content"), support, cat(where, ".content")));
  const json::value* reasoning = nullptr;
  for (const auto& [key, value] : object) {
    const std::string_view name = view(key);
    if (name == "role" || name == "content" || value.is_null()) continue;
    if (name == "reasoning" || (name == "reasoning_content" && reasoning == nullptr)) {
      reasoning = &value;
    } else if (name == "tool_calls") {
      if (!value.is_array()) refuse(cat(where, ".tool_calls"), "is not a list");
      jinja::List calls;
      for (const json::value& call : value.get_array()) {
        calls.push_back(convert_call(call, cat(where, ".tool_calls[", calls.size(), ']')));
      }
      if (!calls.empty()) dict.set("tool_calls", std::move(calls));
    } else if (name != "reasoning_content") {
      dict.set(name, convert(value, 2));
    }
  }
  if (reasoning != nullptr) {
    const jinja::Value value = convert(*reasoning, 2);
    dict.set("reasoning", value);
    dict.set("reasoning_content", value);
  }
  return dict;
}

}  // namespace

jinja::Value to_template_value(const json::value& value) {
  return convert(value, 0);
}

jinja::Value to_template_messages(const json::array& messages, ContentSupport support) {
  jinja::List list;
  list.reserve(messages.size());
  for (const json::value& message : messages) {
    list.push_back(convert_message(message, support, cat("messages[", list.size(), ']')));
  }
  return list;
}

}  // namespace gristmill::text
