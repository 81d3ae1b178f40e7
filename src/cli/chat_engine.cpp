#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "cli/chat_backend.h"
#include "client/engine_client.h"
#include "config/environment.h"
#include "config/host_topology.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/text_model.h"
#include "text/tokenizer.h"

namespace gristmill::cli {
namespace {

/// Outputs of the engine on their way from its thread to ours, with a descriptor that is readable while there are any.
class OutputQueue {
 public:
  OutputQueue() : file_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (file_ < 0) throw Error(cat("no event descriptor: ", std::strerror(errno)));
  }
  ~OutputQueue() { close(file_); }
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;
  int descriptor() const { return file_; }

  void push(engine::EngineOutput output) {
    const std::lock_guard lock(mutex_);
    outputs_.push_back(std::move(output));
    const uint64_t one = 1;
    const ssize_t put = write(file_, &one, sizeof(one));
    static_cast<void>(put);  // only a counter near 2^64 would fail
  }
  std::deque<engine::EngineOutput> take() {
    const std::lock_guard lock(mutex_);
    uint64_t count = 0;
    const ssize_t got = read(file_, &count, sizeof(count));
    static_cast<void>(got);
    return std::exchange(outputs_, {});
  }

 private:
  std::mutex mutex_;
  std::deque<engine::EngineOutput> outputs_;
  int file_;
};

SamplingParams to_params(const ChatSampling& sampling) {
  SamplingParams params;
  const auto set = [](auto& field, const auto& value) {
    if (value) field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
  };
  set(params.temperature, sampling.temperature);
  set(params.top_p, sampling.top_p);
  set(params.min_p, sampling.min_p);
  set(params.top_k, sampling.top_k);
  set(params.repetition_penalty, sampling.repetition_penalty);
  set(params.presence_penalty, sampling.presence_penalty);
  set(params.frequency_penalty, sampling.frequency_penalty);
  params.seed = sampling.seed;
  return params;
}

const char* name_of(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::none:
      return "";
    case engine::FinishReason::stop:
      return "stop";
    case engine::FinishReason::length:
      return "length";
    case engine::FinishReason::abort:
      return "abort";
    case engine::FinishReason::error:
      return "error";
  }
  return "";
}

class EngineChat final : public ChatBackend {
 public:
  EngineChat(const std::string& model, int32_t threads, const ChatSampling& sampling)
      : path_(model), sampling_(sampling) {
    engine::EngineConfig config;
    config.model = model;
    config.threads = threads;
    config.max_num_seqs = 1;
    const config::Lookup environment = config::process_environment();
    config.weight_cache_dir = config::weight_cache_folder(environment);
    config.topology = config::host_topology(environment);
    if (threads == 0) config.threads = config::default_threads(config.topology, environment);
    client_ = make_in_process_client(config);  // loads while the tokenizer is built
    const text::TextModel text_model = text::load_text_model(model);
    tokenizer_ = text_model.tokenizer;
    end_ids_ = text_model.end_ids;
    template_ = std::make_unique<text::ChatTemplate>(text_model.chat_template, text_model.bos, text_model.eos,
                                                     text::ContentFormat::automatic, text_model.chat_template_origin);
    info_ = client_->wait_ready(-1);
  }

  std::string name() const override { return cat(path_, " on ", info_.device); }

  Reply reply(const boost::json::array& messages, const std::function<void(std::string_view)>& text,
              Interrupts& interrupts) override {
    engine::EngineRequest request;
    request.id = client_->next_id();
    request.prompt = tokenizer_->encode(template_->render(messages, {{"add_generation_prompt", true}}), false,
                                        /*parse_special=*/true);
    const int64_t room = info_.max_model_len - static_cast<int64_t>(request.prompt.size());
    if (room < 1) {
      throw Error(cat("the conversation has ", request.prompt.size(), " tokens, more than the model's context of ",
                      info_.max_model_len, "; /reset starts a new one"));
    }
    request.sampling = to_params(sampling_);
    request.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(room, sampling_.max_tokens));
    request.known_tokens = std::min(tokenizer_->vocabulary(), info_.vocabulary);
    validate(request.sampling, request.known_tokens);
    request.eos_ids = end_ids_;

    const engine::RequestId id = request.id;
    const auto queue = std::make_shared<OutputQueue>();  // the engine may hold its end longer than this call
    client_->submit(std::move(request), [queue](engine::EngineOutput&& output) { queue->push(std::move(output)); });
    text::Detokenizer detokenizer(*tokenizer_, /*skip_special=*/true);
    Reply reply;
    while (true) {
      if (interrupts.wait(queue->descriptor()) == Interrupts::Event::interrupt) {
        client_->abort(id);
        reply.interrupted = true;
        text(detokenizer.finish());
        return reply;
      }
      for (const engine::EngineOutput& output : queue->take()) {
        for (const engine::OutputToken& token : output.tokens) text(detokenizer.push(token.token));
        if (output.finish == engine::FinishReason::error) throw Error(cat("the engine failed: ", output.error));
        if (output.finish == engine::FinishReason::none) continue;
        text(detokenizer.finish());
        reply.finish_reason = name_of(output.finish);
        return reply;
      }
    }
  }

 private:
  std::string path_;
  ChatSampling sampling_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> end_ids_;
  std::unique_ptr<text::ChatTemplate> template_;
  std::unique_ptr<EngineClient> client_;
  engine::EngineInfo info_;
};

}  // namespace

std::unique_ptr<ChatBackend> make_engine_chat(const std::string& model, int32_t threads, const ChatSampling& sampling) {
  return std::make_unique<EngineChat>(model, threads, sampling);
}

}  // namespace gristmill::cli
