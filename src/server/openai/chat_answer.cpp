#include "server/openai/answer.h"

namespace gristmill::server::openai {
namespace {

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(const Job& job, const ServedModel& model, std::string id, int64_t created)
      : Answer(job, model, std::move(id), created, "chat.completion.chunk"),
        logprobs_(records_.size(), ChatLogprobs(style())) {}

  void append_body(std::string& out, const Usage& usage) override {
    JsonWriter json(out);
    json.begin_object().key("id").string(id_).key("object").string("chat.completion");
    json.key("created").integer(created_).key("model").string(job_.model);
    json.key("choices").begin_array();
    for (size_t i = 0; i < records_.size(); ++i) write_choice(json, i);
    json.end_array();
    json.key("service_tier").null().key("system_fingerprint").null();
    json.key("usage");
    write_usage(json, usage, true);
    json.key("prompt_logprobs");
    write_prompt_logprobs_of(json, 0);
    json.key("prompt_token_ids");
    if (job_.return_token_ids) {
      write_id_list(json, job_.prompts[0].ids);
    } else {
      json.null();
    }
    json.key("kv_transfer_params").null();
    json.end_object();
  }

 private:
  void begin(size_t choice) override { records_[choice].text = job_.chat_echo; }

  void add_logprobs(size_t choice, const engine::OutputToken& token) override {
    const int64_t asked = job_.logprobs.value_or(0);
    logprobs_[choice].add(token, asked < 0 ? token.top.size() : static_cast<size_t>(asked));
  }

  void write_choice(JsonWriter& json, size_t choice) {
    const Record& record = records_[choice];
    json.begin_object().key("index").integer(static_cast<int64_t>(choice));
    json.key("message").begin_object().key("role").string(job_.role).key("content").string(record.text);
    json.key("refusal").null().key("annotations").null().key("audio").null().key("function_call").null();
    if (job_.strict_vllm) json.key("tool_calls").begin_array().end_array();
    json.key("reasoning").null();
    if (!job_.strict_vllm) json.key("reasoning_content").null();
    json.end_object();
    json.key("logprobs");
    logprobs_[choice].take(json);
    write_finish_reason(json, record);
    json.key("stop_reason").raw(record.stop_reason);
    json.key("token_ids");
    if (job_.return_token_ids) {
      write_id_list(json, record.ids);
    } else {
      json.null();
    }
    json.end_object();
  }

  void write_prompt_ids(JsonWriter& json) const {
    if (!job_.return_token_ids) return;
    json.key("prompt_token_ids");
    write_id_list(json, job_.prompts[0].ids);
  }

  void append_role_chunk(std::string& out, size_t choice) override {
    out += head_;
    JsonWriter json(out);
    json.key("choices").begin_array().begin_object().key("index").integer(static_cast<int64_t>(choice));
    json.key("delta").begin_object().key("role").string(job_.role).key("content").string("").end_object();
    json.key("logprobs").null().key("finish_reason").null().end_object().end_array();
    write_prompt_ids(json);
    out += "}\n\n";
  }

  void write_chunk(JsonWriter& json, size_t choice) override {
    const Record& record = records_[choice];
    const bool first = !record.started && !job_.strict_vllm;
    json.key("choices").begin_array().begin_object().key("index").integer(static_cast<int64_t>(choice));
    json.key("delta").begin_object();
    if (first) json.key("role").string(job_.role);
    json.key("content").string(record.text).end_object();
    json.key("logprobs");
    logprobs_[choice].take(json);
    write_finish_reason(json, record);
    if (record.finish_reason) json.key("stop_reason").raw(record.stop_reason);
    if (job_.return_token_ids) {
      json.key("token_ids");
      write_id_list(json, record.ids);
    }
    json.end_object().end_array();
    if (first) write_prompt_ids(json);
  }

  std::vector<ChatLogprobs> logprobs_;
};

}  // namespace

std::unique_ptr<Answer> make_chat_answer(const Job& job, const ServedModel& model, std::string id, int64_t created) {
  return std::make_unique<ChatAnswer>(job, model, std::move(id), created);
}

}  // namespace gristmill::server::openai
