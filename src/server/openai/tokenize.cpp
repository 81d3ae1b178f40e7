#include "server/openai/tokenize.h"

#include <boost/json/value.hpp>
#include <limits>

#include "server/api_error.h"
#include "server/json_request.h"
#include "server/json_writer.h"
#include "server/openai/job.h"
#include "server/openai/messages.h"

namespace gristmill::server::openai {
namespace json = boost::json;
namespace {

/// The chat's prompt and its ids, made as the chat endpoint makes them.
std::vector<int32_t> chat_ids(const json::object& body, const ServedModel& model, const ApiPolicy& policy) {
  ChatRequest request = parse_chat_request(body);
  request.common.ignored.clear();
  const std::string text = render_chat(request, template_messages(request.messages), model, policy);
  return encode_chat(text, request.common.add_special_tokens.value_or(false), model, policy);
}

}  // namespace

std::string tokenize(const json::object& body, const ServedModel& model, const ApiPolicy& policy) {
  FieldReader fields(body);
  check_model_name(fields.string("model"), model);
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  std::vector<int32_t> ids;
  try {
    if (const std::optional<std::string> prompt = fields.string("prompt")) {
      ids = model.tokenizer->encode(*prompt, fields.boolean("add_special_tokens").value_or(true), true);
    } else if (fields.array("messages")) {
      ids = chat_ids(body, model, policy);
    } else {
      throw schema_error("prompt: is required (or messages)", "prompt");
    }
  } catch (const RequestError& error) {
    throw value_error(error.what(), error.field());
  }
  std::string out;
  JsonWriter writer(out);
  writer.begin_object().key("count").integer(static_cast<int64_t>(ids.size()));
  writer.key("max_model_len").integer(model.max_model_len).key("tokens").begin_array();
  for (const int32_t id : ids) writer.integer(id);
  writer.end_array().key("token_strs");
  if (with_texts) {
    writer.begin_array();
    for (const int32_t id : ids) writer.string(model.tokenizer->token_text(id));
    writer.end_array();
  } else {
    writer.null();
  }
  writer.end_object();
  return out;
}

std::string detokenize(const json::object& body, const ServedModel& model) {
  FieldReader fields(body);
  check_model_name(fields.string("model"), model);
  if (!fields.array("tokens")) throw schema_error("tokens: is required", "tokens");
  const std::vector<int32_t> ids = fields.token_ids("tokens", std::numeric_limits<int32_t>::max());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= model.vocabulary) {
      const std::string path = cat("tokens[", i, "]");
      throw value_error(cat(path, ": token id ", ids[i], " is out of the vocabulary (0 to ", model.vocabulary - 1, ")"),
                        path);
    }
  }
  std::string out;
  JsonWriter(out).begin_object().key("prompt").string(model.tokenizer->decode(ids, false)).end_object();
  return out;
}

}  // namespace gristmill::server::openai
