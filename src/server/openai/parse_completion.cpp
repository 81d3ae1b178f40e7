#include <boost/json/value.hpp>
#include <limits>

#include "server/api_error.h"
#include "server/openai/parse_common.h"

namespace gristmill::server::openai {
namespace json = boost::json;
namespace {

std::vector<int32_t> ids_of(const json::array& list, const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) ids.push_back(token_id(list[i], cat(path, "[", i, "]")));
  return ids;
}

std::string text_of(const json::value& value) {
  return {value.get_string().data(), value.get_string().size()};
}

/// A string, a list of strings, a list of token ids, or a list of such lists.
void parse_prompts(FieldReader& fields, CompletionRequest& out) {
  const json::value* prompt = fields.value("prompt");
  if (!prompt) throw schema_error("prompt: is required", "prompt");
  if (prompt->is_string()) {
    out.prompts.emplace_back(text_of(*prompt));
    return;
  }
  if (!prompt->is_array()) {
    throw schema_error(cat("prompt: must be a string, a list of strings, or token ids, got ", kind_of(*prompt)),
                       "prompt");
  }
  const json::array& list = prompt->get_array();
  if (list.empty()) throw schema_error("prompt: must not be empty", "prompt");
  if (list[0].is_number()) {
    out.prompts.emplace_back(ids_of(list, "prompt"));
    return;
  }
  if (list.size() > max_batched_prompts) {
    throw schema_error(cat("prompt: at most ", max_batched_prompts, " prompts are allowed in one request"), "prompt");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = cat("prompt[", i, "]");
    if (list[i].is_string()) {
      out.prompts.emplace_back(text_of(list[i]));
    } else if (list[i].is_array()) {
      out.prompts.emplace_back(ids_of(list[i].get_array(), path));
    } else {
      throw schema_error(cat(path, ": must be a string or a list of token ids, got ", kind_of(list[i])), path);
    }
  }
}

}  // namespace

CompletionRequest parse_completion_request(const json::object& body) {
  CompletionRequest out;
  FieldReader fields(body);
  parse_prompts(fields, out);
  parse_common(fields, out.common);
  out.common.max_tokens = fields.integer("max_tokens", 0, std::numeric_limits<int32_t>::max());
  if (out.common.max_tokens == 0 && !out.common.echo) {
    throw schema_error("max_tokens: must be at least 1 (0 only together with echo)", "max_tokens");
  }
  out.common.logprobs = fields.integer("logprobs", 0, std::numeric_limits<int32_t>::max());
  if (fields.value("suffix")) throw not_supported("suffix", "inserting text before a suffix");
  if (static_cast<int64_t>(out.prompts.size()) * out.common.n > 4 * static_cast<int64_t>(max_batched_prompts)) {
    throw schema_error(cat("n: ", out.prompts.size(), " prompts times n exceed ", 4 * max_batched_prompts, " choices"),
                       "n");
  }
  note_unknown(fields, out.common);
  return out;
}

}  // namespace gristmill::server::openai
