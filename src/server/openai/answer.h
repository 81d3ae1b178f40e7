#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/messages.h"
#include "server/json_writer.h"
#include "server/openai/choice.h"
#include "server/openai/job.h"
#include "server/openai/logprobs.h"

namespace gristmill::server::openai {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

/// Tells a job's outcome in the words of one endpoint. Output is first accepted, then told: chunk by chunk, each
/// forgotten once told, or all at the end as one body.
class Answer {
 public:
  /// `job` and `model` must outlive it. `created`: seconds since 1970.
  Answer(const Job& job, const ServedModel& model, std::string id, int64_t created, const char* chunk_object);
  virtual ~Answer() = default;

  /// Log-probabilities of a prompt; before accept() of any output that follows it.
  void set_prompt_logprobs(size_t prompt, std::vector<engine::OutputToken> logprobs);
  /// `delta` is what Choice::accept() made of `output`.
  void accept(size_t choice, const Delta& delta, const engine::EngineOutput& output, const std::string& stop_reason);

  /// Whether a chunk is due: something to show, and enough tokens for the stream interval.
  bool chunk_due(size_t choice) const;
  /// Appends one event ("data: {...}" and an empty line) with all that was accepted for `choice`; the first one of a
  /// choice under --strict-vllm is two.
  void append_chunk(std::string& out, size_t choice);
  /// The event that ends a stream with include_usage.
  void append_usage_chunk(std::string& out, const Usage& usage) const;
  virtual void append_body(std::string& out, const Usage& usage) = 0;

 protected:
  struct Record {
    std::string text;
    std::vector<int32_t> ids;
    int64_t tokens = 0;
    int64_t unsent = 0;     ///< tokens accepted since the last chunk
    bool accepted = false;  ///< something was accepted
    bool started = false;   ///< a chunk was told
    const char* finish_reason = nullptr;
    std::string stop_reason = "null";
  };

  /// Adds what stands before a choice's first token (echo).
  virtual void begin(size_t choice) = 0;
  virtual void add_logprobs(size_t choice, const engine::OutputToken& token) = 0;
  virtual void write_chunk(JsonWriter& json, size_t choice) = 0;
  /// The role-only chunk of vLLM; endpoints without one do nothing.
  virtual void append_role_chunk(std::string&, size_t) {}

  void write_usage(JsonWriter& json, const Usage& usage, bool with_nulls) const;
  void write_id_list(JsonWriter& json, const std::vector<int32_t>& ids) const;
  void write_finish_reason(JsonWriter& json, const Record& record) const;
  void write_prompt_logprobs_of(JsonWriter& json, size_t prompt) const;
  size_t prompt_of(size_t choice) const { return choice / static_cast<size_t>(job_.n); }
  LogprobStyle style() const;

  const Job& job_;
  const ServedModel& model_;
  std::string id_;
  int64_t created_;
  std::string head_;  ///< of every event: "data: {" and the fields that never change
  std::vector<Record> records_;
  std::vector<std::vector<engine::OutputToken>> prompt_logprobs_;
};

std::unique_ptr<Answer> make_chat_answer(const Job& job, const ServedModel& model, std::string id, int64_t created);
std::unique_ptr<Answer> make_completion_answer(const Job& job, const ServedModel& model, std::string id,
                                               int64_t created);

}  // namespace gristmill::server::openai
