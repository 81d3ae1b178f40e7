#include "server/openai/answer.h"

namespace gristmill::server::openai {
namespace {

class CompletionAnswer final : public Answer {
 public:
  CompletionAnswer(const Job& job, const ServedModel& model, std::string id, int64_t created)
      : Answer(job, model, std::move(id), created, "text_completion"),
        logprobs_(records_.size(), CompletionLogprobs(style())) {}

  void append_body(std::string& out, const Usage& usage) override {
    JsonWriter json(out);
    json.begin_object().key("id").string(id_).key("object").string("text_completion");
    json.key("created").integer(created_).key("model").string(job_.model);
    json.key("choices").begin_array();
    for (size_t i = 0; i < records_.size(); ++i) {
      write_choice(json, i, true);
    }
    json.end_array();
    json.key("service_tier").null().key("system_fingerprint").null();
    json.key("usage");
    write_usage(json, usage, true);
    json.key("kv_transfer_params").null();
    json.end_object();
  }

 private:
  size_t top() const {
    const int64_t asked = job_.logprobs.value_or(0);
    return static_cast<size_t>(asked < 0 ? model_.vocabulary : asked);
  }

  void begin(size_t choice) override {
    if (!job_.echo) return;
    const size_t prompt = prompt_of(choice);
    records_[choice].text = job_.prompts[prompt].text;
    if (!job_.logprobs) return;
    const std::vector<engine::OutputToken>& known = prompt_logprobs_[prompt];
    for (size_t i = 0; i < known.size(); ++i) {
      if (i == 0) {
        logprobs_[choice].add_first(job_.prompts[prompt].ids[0]);
      } else {
        logprobs_[choice].add(known[i], top());
      }
    }
  }

  void add_logprobs(size_t choice, const engine::OutputToken& token) override { logprobs_[choice].add(token, top()); }

  void write_choice(JsonWriter& json, size_t choice, bool whole) {
    const Record& record = records_[choice];
    json.begin_object().key("index").integer(static_cast<int64_t>(choice));
    json.key("text").string(record.text);
    json.key("logprobs");
    logprobs_[choice].take(json);
    write_finish_reason(json, record);
    json.key("stop_reason").raw(record.stop_reason);
    if (whole) {
      json.key("prompt_logprobs");
      write_prompt_logprobs_of(json, prompt_of(choice));
    }
    json.key("prompt_token_ids");
    if (job_.return_token_ids && !record.started) {
      write_id_list(json, job_.prompts[prompt_of(choice)].ids);
    } else {
      json.null();
    }
    json.key("token_ids");
    if (job_.return_token_ids) {
      write_id_list(json, record.ids);
    } else {
      json.null();
    }
    json.end_object();
  }

  void write_chunk(JsonWriter& json, size_t choice) override {
    json.key("choices").begin_array();
    write_choice(json, choice, false);
    json.end_array();
    if (!job_.continuous_usage) json.key("usage").null();
  }

  std::vector<CompletionLogprobs> logprobs_;
};

}  // namespace

std::unique_ptr<Answer> make_completion_answer(const Job& job, const ServedModel& model, std::string id,
                                               int64_t created) {
  return std::make_unique<CompletionAnswer>(job, model, std::move(id), created);
}

}  // namespace gristmill::server::openai
