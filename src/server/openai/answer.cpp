#include "server/openai/answer.h"

#include <utility>

namespace gristmill::server::openai {

Answer::Answer(const Job& job, const ServedModel& model, std::string id, int64_t created, const char* chunk_object)
    : job_(job),
      model_(model),
      id_(std::move(id)),
      created_(created),
      records_(static_cast<size_t>(job.choices())),
      prompt_logprobs_(job.prompts.size()) {
  head_ = "data: ";
  JsonWriter json(head_);
  json.begin_object().key("id").string(id_).key("object").string(chunk_object);
  json.key("created").integer(created_).key("model").string(job_.model);
  head_ += ',';
}

LogprobStyle Answer::style() const {
  return {model_.tokenizer.get(), job_.tokens_as_ids, job_.skip_special};
}

void Answer::set_prompt_logprobs(size_t prompt, std::vector<engine::OutputToken> logprobs) {
  prompt_logprobs_[prompt] = std::move(logprobs);
}

void Answer::accept(size_t choice, const Delta& delta, const engine::EngineOutput& output,
                    const std::string& stop_reason) {
  Record& record = records_[choice];
  if (!record.accepted) {
    record.accepted = true;
    begin(choice);
  }
  record.text += delta.text;
  record.tokens += static_cast<int64_t>(delta.tokens);
  record.unsent += static_cast<int64_t>(delta.tokens);
  for (size_t i = 0; i < delta.tokens; ++i) {
    if (job_.return_token_ids) record.ids.push_back(output.tokens[i].token);
    if (job_.logprobs) add_logprobs(choice, output.tokens[i]);
  }
  if (delta.finished) {
    record.finish_reason = delta.finish_reason;
    record.stop_reason = stop_reason;
  }
}

bool Answer::chunk_due(size_t choice) const {
  const Record& record = records_[choice];
  if (!record.accepted) return false;
  if (!record.started || record.finish_reason) return true;  // the first token's time is what clients measure
  if (record.unsent < job_.stream_interval) return false;
  return !record.text.empty() || job_.logprobs || job_.return_token_ids || job_.continuous_usage;
}

void Answer::append_chunk(std::string& out, size_t choice) {
  Record& record = records_[choice];
  if (job_.strict_vllm && !record.started) append_role_chunk(out, choice);
  out += head_;
  JsonWriter json(out);
  write_chunk(json, choice);
  if (job_.continuous_usage) {
    const auto prompt = static_cast<int64_t>(job_.prompts[prompt_of(choice)].ids.size());
    json.key("usage");
    write_usage(json, {prompt, record.tokens, 0}, false);
  }
  out += "}\n\n";
  record.started = true;
  record.unsent = 0;
  record.text.clear();
  record.ids.clear();
}

void Answer::append_usage_chunk(std::string& out, const Usage& usage) const {
  out += head_;
  JsonWriter json(out);
  json.key("choices").begin_array().end_array().key("usage");
  write_usage(json, usage, false);
  out += "}\n\n";
}

void Answer::write_usage(JsonWriter& json, const Usage& usage, bool with_nulls) const {
  json.begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  if (job_.prompt_tokens_details) {
    json.key("prompt_tokens_details").begin_object().key("cached_tokens").integer(usage.cached_tokens).end_object();
  } else if (with_nulls) {
    json.key("prompt_tokens_details").null();
  }
  json.end_object();
}

void Answer::write_id_list(JsonWriter& json, const std::vector<int32_t>& ids) const {
  json.begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array();
}

void Answer::write_finish_reason(JsonWriter& json, const Record& record) const {
  json.key("finish_reason");
  if (record.finish_reason) {
    json.string(record.finish_reason);
  } else {
    json.null();
  }
}

void Answer::write_prompt_logprobs_of(JsonWriter& json, size_t prompt) const {
  if (!job_.prompt_logprobs) {
    json.null();
    return;
  }
  const int64_t top = *job_.prompt_logprobs < 0 ? model_.vocabulary : *job_.prompt_logprobs;
  write_prompt_logprobs(json, prompt_logprobs_[prompt], static_cast<size_t>(top), *model_.tokenizer);
}

}  // namespace gristmill::server::openai
