#pragma once
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/serve_config.h"
#include "text/tokenizer.h"

namespace gristmill::server {

/// Messages as openai::template_messages() makes them, and the template's other variables.
using RenderChat = std::function<std::string(const boost::json::array& messages, const boost::json::object& kwargs)>;

/// Values for sampling fields that a request leaves out (--override-generation-config).
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;  ///< also the most a request may ask for
};

/// What the server knows of the model it serves. Immutable and thread safe once made.
struct ServedModel {
  std::vector<std::string> names;  ///< the first one stands in answers
  std::string root;                ///< the model's path
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<int32_t> end_ids;  ///< ids that end a turn
  RenderChat render;
  std::function<RenderChat(const std::string& source)> compile_template;  ///< for templates that requests bring
  boost::json::object default_template_kwargs;
  SamplingDefaults defaults;
  int32_t max_model_len = 0;
  int32_t vocabulary = 0;  ///< rows of the embedding: prompt ids are below it
  bool priority_scheduling = false;

  /// Ids from here on are padding of the model's head, which the tokenizer knows nothing of: never drawn.
  int32_t known_tokens() const;
  bool answers_to(const std::string& name) const;
};

using config::ApiPolicy;

}  // namespace gristmill::server
