#pragma once
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <memory>
#include <string>

namespace gristmill::text {

/// How a message's list of content parts reaches the template.
enum class ContentFormat : uint8_t {
  automatic,  ///< as the template can take it, found out by rendering a probe
  string,     ///< one string: the parts' texts joined by newlines
  openai,     ///< the list of {"type": "text", "text": ...}
};

/// A model's chat template, parsed once. Thread safe.
///
/// What the template sees: `messages`, `bos_token`, `eos_token`, `tools` and `documents` (none unless given),
/// `add_generation_prompt` (false unless given), and everything in `kwargs`. Of each message: null fields and an empty
/// `tool_calls` are left out, missing or null `content` is "", the arguments of tool calls are objects, and reasoning
/// is there under both of its names, `reasoning` and `reasoning_content`.
class ChatTemplate {
 public:
  /// Throws Error with `origin` (where `source` is from: a file, a flag), line and column of a mistake in `source`.
  /// `most_steps`: what a render may take (jinja::Limits).
  ChatTemplate(const std::string& source, std::string bos_token, std::string eos_token,
               ContentFormat format = ContentFormat::automatic, const std::string& origin = "chat template",
               uint64_t most_steps = 50'000'000);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// `messages` is the request's array, `kwargs` the other variables (tools, add_generation_prompt, enable_thinking,
  /// ...). Throws RequestError("messages", ...) when a message is malformed, or when the template raises or hits a
  /// limit.
  std::string render(const boost::json::array& messages, const boost::json::object& kwargs) const;

  /// Whether lists of content parts are passed on as lists.
  bool takes_content_lists() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The template of models that bring none: ChatML.
extern const char* const default_chat_template;

}  // namespace gristmill::text
