#include "server/openai/messages.h"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "server/api_error.h"
#include "server/json_request.h"

namespace gristmill::server::openai {
namespace json = boost::json;
namespace {

json::string text(std::string_view from) {
  return json::string(from.data(), from.size());
}
std::string_view view(const json::string& from) {
  return {from.data(), from.size()};
}

/// The text of one content part; parts that hold none are refused by name.
std::string part_text(const json::value& part, const std::string& path) {
  if (part.is_string()) return std::string(view(part.get_string()));
  if (!part.is_object()) throw schema_error(cat(path, ": must be an object with a type, got ", kind_of(part)), path);
  FieldReader fields(part.get_object(), path);
  const std::string type = fields.string("type").value_or("");
  std::string key;
  if (type == "text" || type == "input_text" || type == "output_text") {
    key = "text";
  } else if (type == "refusal" || type == "thinking") {
    key = type;
  } else if (type == "image_url" || type == "video_url" || type == "input_audio" || type == "audio_url" ||
             type == "image" || type == "input_image" || type == "file") {
    throw value_error(cat(path, ".type: \"", type, "\" cannot be used: the served model takes text only"),
                      fields.path("type"));
  } else {
    throw schema_error(cat(path, ".type: unknown content type \"", shorten(type), "\""), fields.path("type"));
  }
  const std::optional<std::string> found = fields.string(key);
  if (!found) throw schema_error(cat(fields.path(key), ": is required"), fields.path(key));
  return *found;
}

/// A message's content: one string, or a list of text parts.
json::value content_of(FieldReader& fields) {
  const json::value* content = fields.value("content");
  if (!content) return json::string();
  if (content->is_string()) return *content;
  if (!content->is_array()) {
    throw schema_error(cat(fields.path("content"), ": must be a string or a list of parts, got ", kind_of(*content)),
                       fields.path("content"));
  }
  json::array out;
  const json::array& parts = content->get_array();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = part_text(parts[i], cat(fields.path("content"), "[", i, "]"));
    out.push_back(json::object{{"type", "text"}, {"text", text(part)}});
  }
  return out;
}

/// Arguments travel as a JSON text; templates want the object.
json::array tool_calls(const json::array& sent, const std::string& path) {
  json::array out;
  for (size_t i = 0; i < sent.size(); ++i) {
    const std::string call_path = cat(path, "[", i, "]");
    if (!sent[i].is_object())
      throw schema_error(cat(call_path, ": must be an object, got ", kind_of(sent[i])), call_path);
    json::object call = sent[i].get_object();
    FieldReader fields(sent[i].get_object(), call_path);
    const json::object* function = fields.object("function");
    if (!function) throw schema_error(cat(call_path, ".function: is required"), fields.path("function"));
    FieldReader inner(*function, fields.path("function"));
    if (!inner.string("name")) throw schema_error(cat(inner.path("name"), ": is required"), inner.path("name"));
    json::object changed = *function;
    const json::value* arguments = inner.value("arguments");
    if (!arguments || (arguments->is_string() && arguments->get_string().empty())) {
      changed["arguments"] = json::object();
    } else if (arguments->is_string()) {
      try {
        changed["arguments"] = parse_json_object(view(arguments->get_string()));
      } catch (const ApiError& error) {
        throw schema_error(cat(inner.path("arguments"), ": must be the JSON text of an object: ", error.what()),
                           inner.path("arguments"));
      }
    } else if (!arguments->is_object()) {
      throw schema_error(cat(inner.path("arguments"), ": must be a string, got ", kind_of(*arguments)),
                         inner.path("arguments"));
    }
    call["function"] = std::move(changed);
    out.push_back(std::move(call));
  }
  return out;
}

}  // namespace

json::array template_messages(const json::array& sent) {
  json::array out;
  out.reserve(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    const std::string path = cat("messages[", i, "]");
    if (!sent[i].is_object()) throw schema_error(cat(path, ": must be an object, got ", kind_of(sent[i])), path);
    FieldReader fields(sent[i].get_object(), path);
    const std::optional<std::string> role = fields.string("role");
    if (!role || role->empty()) throw schema_error(cat(path, ".role: is required"), fields.path("role"));
    json::object message;
    message["role"] = text(*role);
    message["content"] = content_of(fields);
    const json::array* calls = fields.array("tool_calls");
    const bool may_be_empty = *role == "assistant" || *role == "tool";
    if (!fields.value("content") && !may_be_empty) {
      throw schema_error(cat(path, ".content: is required"), fields.path("content"));
    }
    for (const char* name : {"name", "tool_call_id"}) {
      if (const std::optional<std::string> found = fields.string(name)) message[name] = text(*found);
    }
    if (*role == "assistant") {
      std::optional<std::string> reasoning = fields.string("reasoning");
      if (!reasoning) reasoning = fields.string("reasoning_content");
      if (reasoning) {
        message["reasoning"] = text(*reasoning);
        message["reasoning_content"] = text(*reasoning);
      }
      if (calls && !calls->empty()) message["tool_calls"] = tool_calls(*calls, fields.path("tool_calls"));
    }
    out.push_back(std::move(message));
  }
  return out;
}

std::string message_text(const json::object& message) {
  const json::value& content = message.at("content");
  if (content.is_string()) return std::string(view(content.get_string()));
  std::string out;
  for (const json::value& part : content.get_array()) out += view(part.at("text").get_string());
  return out;
}

void append_to_message(json::object& message, std::string_view addition) {
  json::value& content = message.at("content");
  if (content.is_string()) {
    content.get_string().append(addition.begin(), addition.end());
    return;
  }
  json::array& parts = content.get_array();
  if (parts.empty()) parts.push_back(json::object{{"type", "text"}, {"text", ""}});
  parts.back().at("text").get_string().append(addition.begin(), addition.end());
}

}  // namespace gristmill::server::openai
