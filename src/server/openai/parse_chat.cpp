#include <boost/json/value.hpp>
#include <limits>

#include "server/api_error.h"
#include "server/openai/parse_common.h"

namespace gristmill::server::openai {
namespace json = boost::json;
namespace {

void parse_tools(FieldReader& fields, ChatRequest& out) {
  fields.known("parallel_tool_calls");
  if (const json::array* tools = fields.array("tools")) {
    if (tools->empty()) throw schema_error("tools: must not be an empty list; leave the field out instead", "tools");
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string path = cat("tools[", i, "]");
      if (!(*tools)[i].is_object())
        throw schema_error(cat(path, ": must be an object, got ", kind_of((*tools)[i])), path);
      FieldReader tool((*tools)[i].get_object(), path);
      if (tool.string("type").value_or("function") != "function") {
        throw schema_error(cat(path, ".type: must be \"function\""), tool.path("type"));
      }
      const json::object* function = tool.object("function");
      if (!function) throw schema_error(cat(path, ".function: is required"), tool.path("function"));
      FieldReader inner(*function, tool.path("function"));
      if (!inner.string("name")) throw schema_error(cat(path, ".function.name: is required"), inner.path("name"));
    }
    out.tools = *tools;
  }
  const json::value* choice = fields.value("tool_choice");
  if (!choice) return;
  if (choice->is_object()) throw not_supported("tool_choice", "a named function");
  const std::string name = fields.string("tool_choice").value_or("");
  if (name == "required") throw not_supported("tool_choice", "\"required\"");
  if (name != "none" && name != "auto") {
    throw schema_error("tool_choice: must be \"none\", \"auto\", \"required\" or a named function", "tool_choice");
  }
  if (name == "auto" && out.tools.empty()) {
    throw schema_error("tool_choice: can only be set when tools are given", "tool_choice");
  }
  out.tools_in_prompt = name != "none";
}

void parse_template_fields(FieldReader& fields, ChatRequest& out) {
  const std::optional<bool> add = fields.boolean("add_generation_prompt");
  out.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (out.continue_final_message && add.value_or(true)) {
    throw schema_error(
        "continue_final_message: cannot be true while add_generation_prompt is (its default); send "
        "add_generation_prompt=false",
        "continue_final_message");
  }
  out.add_generation_prompt = add.value_or(true);
  out.chat_template = fields.string("chat_template").value_or("");
  if (const json::object* kwargs = fields.object("chat_template_kwargs")) {
    out.template_kwargs = *kwargs;
    if (const json::value* inner = out.template_kwargs.if_contains("chat_template")) {
      if (!inner->is_string()) {
        throw schema_error("chat_template_kwargs.chat_template: must be a string",
                           "chat_template_kwargs.chat_template");
      }
      out.chat_template = std::string(inner->get_string().data(), inner->get_string().size());
      out.template_kwargs.erase("chat_template");
    }
  }
  if (const json::array* documents = fields.array("documents")) out.template_kwargs["documents"] = *documents;
  if (const std::optional<std::string> effort = fields.string("reasoning_effort")) {
    out.template_kwargs["reasoning_effort"] = json::string(effort->data(), effort->size());
  }
  if (!fields.boolean("include_reasoning").value_or(true)) out.common.ignored.push_back("include_reasoning");
}

}  // namespace

ChatRequest parse_chat_request(const json::object& body) {
  ChatRequest out;
  FieldReader fields(body);
  const json::array* messages = fields.array("messages");
  if (!messages) throw schema_error("messages: is required", "messages");
  if (messages->empty()) throw schema_error("messages: must not be empty", "messages");
  out.messages = *messages;
  parse_common(fields, out.common);
  const auto max_tokens = fields.integer("max_tokens", 1, std::numeric_limits<int32_t>::max());
  const auto max_completion = fields.integer("max_completion_tokens", 1, std::numeric_limits<int32_t>::max());
  out.common.max_tokens = max_completion ? max_completion : max_tokens;
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", -1, std::numeric_limits<int32_t>::max());
  if (top.value_or(0) != 0 && !logprobs) {
    throw schema_error("top_logprobs: needs logprobs to be true", "top_logprobs");
  }
  if (logprobs) out.common.logprobs = top.value_or(0);
  parse_template_fields(fields, out);
  parse_tools(fields, out);
  note_unknown(fields, out.common);
  return out;
}

}  // namespace gristmill::server::openai
