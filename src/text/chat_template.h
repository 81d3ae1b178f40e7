#pragma once
#include <boost/json/fwd.hpp>
#include <memory>
#include <string>

namespace gristmill::text {

/// A model's chat template, parsed once. Thread safe.
class ChatTemplate {
 public:
  /// Throws Error with line and column of a mistake in `source`.
  ChatTemplate(std::string source, std::string bos_token, std::string eos_token);
  ~ChatTemplate();

  /// `messages` is the request's array, `kwargs` the other variables (tools, add_generation_prompt, enable_thinking,
  /// ...). Throws RequestError when the template raises or hits a limit.
  std::string render(const boost::json::array& messages, const boost::json::object& kwargs) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The template of models that bring none: ChatML.
extern const char* const default_chat_template;

}  // namespace gristmill::text
