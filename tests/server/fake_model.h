#pragma once
#include <boost/json.hpp>
#include <memory>
#include <string>

#include "fake_tokenizer.h"
#include "server/served_model.h"

namespace gristmill::server {

/// ChatML over bytes; a message with the content "raise" makes the template fail.
inline std::string fake_render(const boost::json::array& messages, const boost::json::object& kwargs) {
  std::string out;
  for (const boost::json::value& message : messages) {
    std::string content;
    const boost::json::value& sent = message.at("content");
    if (sent.is_string()) {
      content = std::string(sent.get_string().c_str(), sent.get_string().size());
    } else {
      for (const boost::json::value& part : sent.get_array()) content += part.at("text").get_string().c_str();
    }
    if (content == "raise") throw RequestError("messages", "Conversation roles must alternate");
    out += std::string("<|im_start|>") + message.at("role").get_string().c_str() + "\n" + content + "<|im_end|>\n";
  }
  if (const auto* tools = kwargs.if_contains("tools"))
    out += "tools:" + std::to_string(tools->get_array().size()) + "\n";
  if (const auto* thinking = kwargs.if_contains("enable_thinking"))
    out += thinking->get_bool() ? "think\n" : "no think\n";
  if (kwargs.at("add_generation_prompt").get_bool()) out += "<|im_start|>assistant\n";
  return out;
}

inline std::shared_ptr<ServedModel> fake_model(int32_t max_model_len = 512) {
  auto model = std::make_shared<ServedModel>();
  model->names = {"fake", "alias"};
  model->root = "/models/fake.gguf";
  model->tokenizer = std::make_shared<FakeTokenizer>();
  model->render = fake_render;
  model->compile_template = [](const std::string& source) -> RenderChat {
    return [source](const boost::json::array&, const boost::json::object&) { return source; };
  };
  model->max_model_len = max_model_len;
  model->vocabulary = FakeTokenizer::size;
  return model;
}

inline boost::json::object parse(const std::string& text) {
  return boost::json::parse(text).get_object();
}

}  // namespace gristmill::server
