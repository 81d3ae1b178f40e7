#include "server/openai/parse_common.h"

#include <boost/json/value.hpp>
#include <charconv>
#include <limits>

#include "server/api_error.h"

namespace gristmill::server::openai {
namespace json = boost::json;
namespace {

constexpr int64_t int32_max = std::numeric_limits<int32_t>::max();
constexpr int64_t int64_max = std::numeric_limits<int64_t>::max();

void parse_stop(FieldReader& fields, CommonFields& out) {
  out.stop = fields.strings("stop", max_stop_strings);
  for (size_t i = 0; i < out.stop.size(); ++i) {
    if (out.stop[i].empty()) throw schema_error("stop: a stop string cannot be empty", "stop");
    if (out.stop[i].size() > max_stop_bytes) {
      throw schema_error(cat("stop[", i, "]: longer than ", max_stop_bytes, " bytes"), "stop");
    }
  }
  out.stop_token_ids = fields.token_ids("stop_token_ids", max_token_id_list);
  out.include_stop_str_in_output = fields.boolean("include_stop_str_in_output").value_or(false);
}

void parse_logit_bias(FieldReader& fields, CommonFields& out) {
  const json::object* bias = fields.object("logit_bias");
  if (!bias) return;
  if (bias->size() > max_token_id_list) throw schema_error("logit_bias: too many entries", "logit_bias");
  FieldReader values(*bias, "logit_bias");
  for (const auto& entry : *bias) {
    const std::string_view key(entry.key().data(), entry.key().size());
    int32_t token = 0;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (failure != std::errc() || end != key.data() + key.size()) {
      throw schema_error(cat("logit_bias: the key \"", shorten(key), "\" is not a token id"), "logit_bias");
    }
    const std::optional<double> value = values.number(key);
    if (!value) throw schema_error(cat("logit_bias.", key, ": must be a number, got null"), "logit_bias");
    out.logit_bias.emplace_back(token, static_cast<float>(std::min(100.0, std::max(-100.0, *value))));
  }
}

void parse_stream(FieldReader& fields, CommonFields& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const json::object* options = fields.object("stream_options");
  if (!options) return;
  if (!out.stream) throw schema_error("stream_options: can only be set when stream is true", "stream_options");
  FieldReader inner(*options, "stream_options");
  out.include_usage = inner.boolean("include_usage").value_or(false);
  out.continuous_usage_stats = inner.boolean("continuous_usage_stats").value_or(false);
  for (const std::string& name : inner.unknown()) out.ignored.push_back(inner.path(name));
}

/// Things that change what is generated are refused until they are built: ignoring them would give wrong answers.
void refuse_unbuilt(FieldReader& fields) {
  if (const json::object* format = fields.object("response_format")) {
    FieldReader inner(*format, "response_format");
    const std::string type = inner.string("type").value_or("");
    if (type != "text") throw not_supported("response_format", cat("type \"", shorten(type), "\""));
  }
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"}) {
    if (fields.value(name)) throw not_supported(name, "structured output");
  }
  if (fields.boolean("use_beam_search").value_or(false)) throw not_supported("use_beam_search", "beam search");
  if (fields.value("repetition_detection")) throw not_supported("repetition_detection", "repetition detection");
  if (fields.value("prompt_embeds")) throw not_supported("prompt_embeds", "a prompt of embeddings");
}

}  // namespace

void parse_common(FieldReader& fields, CommonFields& out) {
  out.model = fields.string("model");
  out.temperature = fields.number("temperature");
  out.top_p = fields.number("top_p");
  out.min_p = fields.number("min_p");
  out.repetition_penalty = fields.number("repetition_penalty");
  out.top_k = fields.integer("top_k", -1, int32_max);
  out.presence_penalty = fields.number("presence_penalty").value_or(0);
  out.frequency_penalty = fields.number("frequency_penalty").value_or(0);
  out.seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), int64_max);
  if (out.seed == -1) out.seed.reset();
  out.min_tokens = fields.integer("min_tokens", 0, int32_max).value_or(0);
  out.n = static_cast<int32_t>(fields.integer("n", 1, max_choices).value_or(1));
  out.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  parse_stop(fields, out);
  out.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  parse_logit_bias(fields, out);
  if (fields.array("allowed_token_ids")) {
    out.allowed_token_ids = fields.token_ids("allowed_token_ids", max_token_id_list);
    if (out.allowed_token_ids.empty()) throw schema_error("allowed_token_ids: cannot be empty", "allowed_token_ids");
  }
  out.bad_words = fields.strings("bad_words", max_bad_words, false);
  out.prompt_logprobs = fields.integer("prompt_logprobs", -1, int32_max);
  out.echo = fields.boolean("echo").value_or(false);
  parse_stream(fields, out);
  if (out.stream && out.prompt_logprobs) {
    throw schema_error("prompt_logprobs: not available when stream is true", "prompt_logprobs");
  }
  out.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  out.return_tokens_as_token_ids = fields.boolean("return_tokens_as_token_ids");
  out.add_special_tokens = fields.boolean("add_special_tokens");
  out.truncate_prompt_tokens = fields.integer("truncate_prompt_tokens", -1, int32_max);
  out.priority =
      static_cast<int32_t>(fields.integer("priority", std::numeric_limits<int32_t>::min(), int32_max).value_or(0));
  if (const std::optional<std::string> salt = fields.string("cache_salt")) {
    if (salt->empty()) throw schema_error("cache_salt: cannot be empty", "cache_salt");
    if (salt->size() > 4096) throw schema_error("cache_salt: longer than 4096 bytes", "cache_salt");
    out.cache_salt = *salt;
  }
  out.request_id = fields.string("request_id").value_or("");
  refuse_unbuilt(fields);
  // Values that ask for what happens anyway.
  if (!fields.boolean("spaces_between_special_tokens").value_or(true))
    out.ignored.push_back("spaces_between_special_tokens");
  if (fields.number("length_penalty").value_or(1) != 1) out.ignored.push_back("length_penalty");
  fields.known("user");
  fields.known("metadata");
}

void note_unknown(const FieldReader& fields, CommonFields& out) {
  for (std::string& name : fields.unknown()) out.ignored.push_back(std::move(name));
}

}  // namespace gristmill::server::openai
