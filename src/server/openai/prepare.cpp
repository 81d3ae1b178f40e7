#include <algorithm>
#include <boost/json/value.hpp>
#include <limits>

#include "server/api_error.h"
#include "server/openai/job.h"
#include "server/openai/messages.h"

namespace gristmill::server::openai {
namespace json = boost::json;
namespace {

/// A mark no template prints by itself: where it lands in the rendered text, the final message's text ends.
constexpr std::string_view end_mark = "\xEE\x80\x80gristmill-end-of-message\xEE\x80\x81";

/// The number of alternatives to ask the engine for.
int32_t logprob_count(const std::optional<int64_t>& asked, const char* kind, const char* field,
                      const ServedModel& model, const ApiPolicy& policy) {
  if (!asked) return -1;
  const int64_t count = *asked < 0 ? model.known_tokens() : *asked;
  if (policy.max_logprobs >= 0 && count > policy.max_logprobs) {
    throw value_error(
        cat("Requested ", kind, " logprobs of ", count, ", which is greater than max allowed: ", policy.max_logprobs),
        field);
  }
  return static_cast<int32_t>(std::min<int64_t>(count, model.known_tokens()));
}

/// Both with and without a space in front: vocabularies know a word by either.
std::vector<std::vector<int32_t>> bad_word_tokens(const std::vector<std::string>& words, const ServedModel& model) {
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word =
        std::string_view(words[i]).substr(std::min(words[i].find_first_not_of(' '), words[i].size()));
    const std::string spaced = cat(" ", word);
    for (const std::string_view form : {word, std::string_view(spaced)}) {
      std::vector<int32_t> ids = model.tokenizer->encode(form, false, false);
      if (word.empty() || ids.empty()) {
        throw value_error(cat("bad_words[", i, "]: has no tokens"), cat("bad_words[", i, "]"));
      }
      if (std::find(out.begin(), out.end(), ids) == out.end()) out.push_back(std::move(ids));
    }
  }
  return out;
}

float temperature_of(double wanted) {
  // Between the greedy threshold and 0.01 logits divided by it overflow; vLLM raises these too.
  if (wanted >= 1e-5 && wanted < 0.01) return 0.01f;
  return static_cast<float>(wanted);
}

void fill_sampling(const CommonFields& fields, const ServedModel& model, const ApiPolicy& policy, Job& job) {
  SamplingParams& sampling = job.sampling;
  const SamplingDefaults& defaults = model.defaults;
  const auto choose = [](const std::optional<double>& sent, const std::optional<double>& preset, double otherwise) {
    return sent ? *sent : preset.value_or(otherwise);
  };
  sampling.temperature = temperature_of(choose(fields.temperature, defaults.temperature, 1));
  sampling.top_p = static_cast<float>(choose(fields.top_p, defaults.top_p, 1));
  sampling.min_p = static_cast<float>(choose(fields.min_p, defaults.min_p, 0));
  sampling.repetition_penalty = static_cast<float>(choose(fields.repetition_penalty, defaults.repetition_penalty, 1));
  sampling.top_k = static_cast<int32_t>(fields.top_k ? *fields.top_k : defaults.top_k.value_or(0));
  sampling.presence_penalty = static_cast<float>(fields.presence_penalty);
  sampling.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  sampling.seed = fields.seed;
  sampling.min_tokens = static_cast<int32_t>(fields.min_tokens);
  sampling.ignore_eos = fields.ignore_eos;
  sampling.stop_token_ids = fields.stop_token_ids;
  sampling.logit_bias = fields.logit_bias;
  sampling.allowed_token_ids = fields.allowed_token_ids;
  sampling.bad_words = bad_word_tokens(fields.bad_words, model);
  sampling.logprobs = logprob_count(fields.logprobs, "sample", job.chat ? "top_logprobs" : "logprobs", model, policy);
  sampling.prompt_logprobs = logprob_count(fields.prompt_logprobs, "prompt", "prompt_logprobs", model, policy);
  if (!job.chat && job.echo && fields.logprobs) {
    sampling.prompt_logprobs = std::max(sampling.prompt_logprobs, sampling.logprobs);
  }
  if (fields.n > 1 && sampling.greedy()) {
    throw value_error(cat("n must be 1 when using greedy sampling, got ", fields.n, "."), "n");
  }
}

void fill_answer(const CommonFields& fields, const ServedModel& model, const ApiPolicy& policy, Job& job) {
  job.n = fields.n;
  job.priority = fields.priority;
  job.cache_salt = fields.cache_salt;
  job.request_id = fields.request_id;
  job.model = fields.model && !fields.model->empty() ? *fields.model : model.names.front();
  job.stream = fields.stream;
  job.include_usage = fields.include_usage || (fields.stream && policy.force_include_usage);
  job.continuous_usage = fields.continuous_usage_stats && job.include_usage;
  job.prompt_tokens_details = policy.prompt_tokens_details;
  job.strict_vllm = policy.strict_vllm;
  job.stream_interval = policy.stream_interval;
  job.stop = fields.stop;
  job.include_stop = fields.include_stop_str_in_output;
  job.skip_special = fields.skip_special_tokens;
  job.echo = fields.echo;
  job.logprobs = fields.logprobs;
  job.prompt_logprobs = fields.prompt_logprobs;
  job.return_token_ids = fields.return_token_ids;
  job.tokens_as_ids = fields.return_tokens_as_token_ids.value_or(policy.return_tokens_as_token_ids);
  if (!fields.ignored.empty()) {
    std::string names;
    for (const std::string& name : fields.ignored) names += (names.empty() ? "" : ", ") + shorten(name, 64);
    job.warnings.push_back(cat("ignored fields: ", shorten(names, 1024)));
  }
  if (fields.priority != 0 && !model.priority_scheduling) {
    job.warnings.push_back("priority has no effect: the server runs --scheduling-policy fcfs");
  }
}

/// Rejects by length before spending time on tokenizing: a token has at most so many bytes.
void check_text_size(std::string_view text, const ServedModel& model) {
  const auto longest = static_cast<size_t>(std::max(1, model.tokenizer->longest_token()));
  const size_t most = static_cast<size_t>(model.max_model_len) * longest;
  if (text.size() <= most) return;
  throw value_error(
      cat("This model's maximum context length is ", model.max_model_len, " tokens. However, your prompt has ",
          text.size(), " bytes, which are more tokens in any case (a token has at most ", longest,
          " bytes). Please reduce the length of the input prompt."),
      "input_text");
}

[[noreturn]] void throw_too_long(const ServedModel& model, int64_t output, size_t input) {
  throw value_error(
      cat("This model's maximum context length is ", model.max_model_len, " tokens. However, you requested ", output,
          " output tokens and your prompt contains ", input, " input tokens, for a total of ",
          static_cast<int64_t>(input) + output,
          " tokens. Please reduce the length of the input prompt or the number of requested output tokens."),
      "input_tokens");
}

/// Keeps the last tokens, as vLLM does for generators.
void truncate(std::vector<int32_t>& ids, const CommonFields& fields, const ServedModel& model) {
  if (!fields.truncate_prompt_tokens) return;
  const int64_t room = model.max_model_len - fields.max_tokens.value_or(1);
  int64_t keep = *fields.truncate_prompt_tokens;
  if (keep < 0) keep = std::max<int64_t>(room, 1);
  if (keep == 0 || keep > room) {
    throw value_error(cat("truncate_prompt_tokens: must be between 1 and ", room, ", the room beside the output"),
                      "truncate_prompt_tokens");
  }
  if (static_cast<int64_t>(ids.size()) > keep) ids.erase(ids.begin(), ids.end() - keep);
}

/// `max_tokens` for this request (CONTRACT: an explicit value must fit beside the longest prompt, an absent one takes
/// what is left, of completions at most 16), after checking every prompt.
int32_t output_tokens(const CommonFields& fields, const ServedModel& model, Job& job) {
  size_t longest = 0;
  for (size_t i = 0; i < job.prompts.size(); ++i) {
    std::vector<int32_t>& ids = job.prompts[i].ids;
    const std::string field = job.chat ? "messages" : job.prompts.size() == 1 ? "prompt" : cat("prompt[", i, "]");
    if (ids.empty()) throw value_error(cat(field, ": the prompt has no tokens"), field);
    for (const int32_t id : ids) {
      if (id < 0 || id >= model.vocabulary) {
        throw value_error(cat(field, ": token id ", id, " is out of the vocabulary (0 to ", model.vocabulary - 1, ")"),
                          field);
      }
    }
    truncate(ids, fields, model);
    longest = std::max(longest, ids.size());
  }
  const int64_t room = model.max_model_len - static_cast<int64_t>(longest);
  const int64_t cap = model.defaults.max_new_tokens.value_or(std::numeric_limits<int32_t>::max());
  if (room < 1 || (fields.max_tokens && *fields.max_tokens > room)) {
    throw_too_long(model, fields.max_tokens.value_or(0), longest);
  }
  const int64_t wanted = fields.max_tokens ? *fields.max_tokens : job.chat ? room : std::min<int64_t>(16, room);
  return static_cast<int32_t>(std::min(wanted, cap));
}

void finish(const CommonFields& fields, const ServedModel& model, Job& job) {
  job.sampling.max_tokens = output_tokens(fields, model, job);
  if (job.sampling.min_tokens > job.sampling.max_tokens) {
    throw value_error(cat("min_tokens must be less than or equal to max_tokens=", job.sampling.max_tokens, ", got ",
                          job.sampling.min_tokens, "."),
                      "min_tokens");
  }
  try {
    validate(job.sampling, model.known_tokens());
  } catch (const RequestError& error) {
    throw value_error(error.what(), error.field());
  }
}

std::vector<int32_t> encode_prompt(const std::string& text, const CommonFields& fields, const ServedModel& model) {
  if (!fields.truncate_prompt_tokens) check_text_size(text, model);
  try {
    // Control tokens written in a prompt are parsed, as transformers and vLLM do: clients send rendered chats here.
    return model.tokenizer->encode(text, fields.add_special_tokens.value_or(true), true);
  } catch (const RequestError& error) {
    throw value_error(cat("prompt: ", error.what()), "prompt");
  }
}

/// Marks the control tokens that any text in `value` spells.
void guard(json::value& value, const text::Tokenizer& tokenizer) {
  if (value.is_string()) {
    json::string& text = value.get_string();
    text = tokenizer.guarded({text.data(), text.size()});
  } else if (value.is_array()) {
    for (json::value& each : value.get_array()) guard(each, tokenizer);
  } else if (value.is_object()) {
    for (auto& each : value.get_object()) guard(each.value(), tokenizer);
  }
}

}  // namespace

std::vector<int32_t> encode_chat(const std::string& text, bool add_special, const ServedModel& model,
                                 const ApiPolicy& policy) {
  return policy.parse_message_control_tokens ? model.tokenizer->encode(text, add_special, true)
                                             : model.tokenizer->encode_guarded(text, add_special);
}

void check_model_name(const std::optional<std::string>& name, const ServedModel& model) {
  if (!name || name->empty() || model.answers_to(*name)) return;
  throw ApiError(404, "NotFoundError", cat("The model `", shorten(*name), "` does not exist."), "model");
}

std::string render_chat(const ChatRequest& request, json::array messages, const ServedModel& model,
                        const ApiPolicy& policy) {
  RenderChat own;
  if (!request.chat_template.empty()) {
    if (!policy.trust_request_chat_template || !model.compile_template) {
      throw value_error(
          "Chat template is passed with request, but --trust-request-chat-template is not set. Refused request with "
          "untrusted chat template.",
          "chat_template");
    }
    try {
      own = model.compile_template(request.chat_template);
    } catch (const Error& error) {
      throw value_error(cat("chat_template: ", error.what()), "chat_template");
    }
  }
  json::object kwargs = model.default_template_kwargs;
  for (const auto& entry : request.template_kwargs) kwargs[entry.key()] = entry.value();
  kwargs["add_generation_prompt"] = request.add_generation_prompt;
  if (!request.tools.empty() && (request.tools_in_prompt || !policy.exclude_tools_when_tool_choice_none)) {
    kwargs["tools"] = request.tools;
  }
  if (!policy.parse_message_control_tokens) {
    for (json::value& message : messages) guard(message, *model.tokenizer);
    for (auto& entry : kwargs) guard(entry.value(), *model.tokenizer);
  }
  if (request.continue_final_message) {
    json::object& last = messages.back().get_object();
    if (last.at("role") != "assistant") {
      throw value_error("continue_final_message: the last message must have the role assistant",
                        "continue_final_message");
    }
    append_to_message(last, end_mark);
  }
  std::string text;
  try {
    text = own ? own(messages, kwargs) : model.render(messages, kwargs);
  } catch (const Error& error) {
    throw value_error(cat("chat template: ", error.what()), "messages");
  }
  if (request.continue_final_message) {
    const size_t end = text.rfind(end_mark);
    if (end == std::string::npos) {
      throw value_error("continue_final_message: the chat template does not print the final message",
                        "continue_final_message");
    }
    text.resize(end);
  }
  return text;
}

Job prepare_chat(const ChatRequest& request, const ServedModel& model, const ApiPolicy& policy) {
  const CommonFields& fields = request.common;
  check_model_name(fields.model, model);
  Job job;
  job.chat = true;
  fill_answer(fields, model, policy, job);
  job.echo = false;
  fill_sampling(fields, model, policy, job);
  json::array messages = template_messages(request.messages);
  const json::object& last = messages.back().get_object();
  const json::string& last_role = last.at("role").get_string();
  job.role = request.add_generation_prompt ? policy.response_role : std::string(last_role.data(), last_role.size());
  if (fields.echo && job.role == std::string_view(last_role.data(), last_role.size()))
    job.chat_echo = message_text(last);
  if (!request.tools.empty()) {
    job.warnings.push_back("tool calls come back as text: tool parsing is not supported yet");
  }
  const std::string text = render_chat(request, std::move(messages), model, policy);
  if (!fields.truncate_prompt_tokens) check_text_size(text, model);
  Prompt prompt;
  try {
    prompt.ids = encode_chat(text, fields.add_special_tokens.value_or(false), model, policy);
  } catch (const RequestError& error) {
    throw value_error(cat("messages: ", error.what()), "messages");
  }
  job.prompts.push_back(std::move(prompt));
  finish(fields, model, job);
  return job;
}

Job prepare_completion(const CompletionRequest& request, const ServedModel& model, const ApiPolicy& policy) {
  const CommonFields& fields = request.common;
  check_model_name(fields.model, model);
  Job job;
  fill_answer(fields, model, policy, job);
  job.no_output = fields.max_tokens == 0;
  fill_sampling(fields, model, policy, job);
  for (const auto& sent : request.prompts) {
    Prompt prompt;
    if (const std::string* text = std::get_if<std::string>(&sent)) {
      prompt.ids = encode_prompt(*text, fields, model);
      if (fields.echo) prompt.text = *text;
    } else {
      prompt.ids = std::get<std::vector<int32_t>>(sent);
      if (fields.echo) prompt.text = model.tokenizer->decode(prompt.ids, fields.skip_special_tokens);
    }
    job.prompts.push_back(std::move(prompt));
  }
  finish(fields, model, job);
  return job;
}

}  // namespace gristmill::server::openai
