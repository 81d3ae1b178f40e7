#pragma once
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/interrupts.h"

namespace gristmill::cli {

/// What the user set; the rest is left to the server's or engine's defaults, but for the length: a small model may not
/// find an end.
struct ChatSampling {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, seed;
  int64_t max_tokens = 1024;
};

/// Something that answers a conversation.
class ChatBackend {
 public:
  struct Reply {
    std::string finish_reason;  ///< "stop", "length", ...; empty when the reply was interrupted
    bool interrupted = false;
  };
  virtual ~ChatBackend() = default;
  /// Passes the reply to `messages` to `text` piece by piece, each piece valid UTF-8. A SIGINT ends the reply early.
  /// Throws Error when there is none.
  virtual Reply reply(const boost::json::array& messages, const std::function<void(std::string_view)>& text,
                      Interrupts& interrupts) = 0;
  /// What answers, for the greeting.
  virtual std::string name() const = 0;
};

/// A running server. `model` may be empty: the first one that the server lists. Throws Error when none answers.
std::unique_ptr<ChatBackend> make_http_chat(const std::string& url, const std::string& model,
                                            const std::string& api_key, const ChatSampling& sampling);

/// A model file, loaded into this process. Throws Error when it cannot be loaded.
std::unique_ptr<ChatBackend> make_engine_chat(const std::string& model, int32_t threads, const ChatSampling& sampling);

}  // namespace gristmill::cli
