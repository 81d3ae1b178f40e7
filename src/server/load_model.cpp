#include "server/load_model.h"

#include <boost/json/value.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/json_request.h"
#include "text/chat_template.h"
#include "text/text_model.h"

namespace gristmill::server {
namespace {

text::ContentFormat format_named(const std::string& name) {
  if (name == "string") return text::ContentFormat::string;
  if (name == "openai") return text::ContentFormat::openai;
  return text::ContentFormat::automatic;
}

struct TemplateSource {
  std::string text;
  std::string origin;  ///< file or flag, for messages
};

TemplateSource template_source(const config::ServeConfig& config, const text::TextModel& own) {
  const std::string& wanted = config.model.chat_template;
  if (wanted.empty()) return {own.chat_template, own.chat_template_origin};
  std::error_code ignored;
  if (std::filesystem::is_regular_file(wanted, ignored)) {
    std::ifstream in(wanted, std::ios::binary);
    std::string source((std::istreambuf_iterator<char>(in)), {});
    if (!in) throw Error(cat("--chat-template ", wanted, ": cannot be read"));
    return {source, cat("--chat-template ", wanted)};
  }
  // One line of text is a template itself if it holds any template syntax.
  if (wanted.find_first_of("{}\n") != std::string::npos) return {wanted, "--chat-template"};
  throw Error(cat("--chat-template ", wanted, ": appears path-like, but there is no such file"));
}

boost::json::object object_of(const char* flag, const std::string& json) {
  if (json.empty()) return {};
  try {
    return parse_json_object(json);
  } catch (const ApiError& error) {
    throw Error(cat(flag, ": ", error.what(), " in ", json));
  }
}

/// Values that no request could be served with are an error of `source`, not of every request.
void check_range(const SamplingDefaults& defaults, const std::string& source) {
  SamplingParams params;
  const auto take = [](auto& to, const auto& from) {
    if (from) to = static_cast<std::remove_reference_t<decltype(to)>>(*from);
  };
  take(params.temperature, defaults.temperature);
  take(params.top_p, defaults.top_p);
  take(params.min_p, defaults.min_p);
  take(params.top_k, defaults.top_k);
  take(params.repetition_penalty, defaults.repetition_penalty);
  try {
    validate(params, std::numeric_limits<int32_t>::max());
  } catch (const RequestError& error) {
    throw Error(cat(source, ": ", error.what()));
  }
}

SamplingDefaults defaults_of(const std::string& json) {
  const char* const flag = "--override-generation-config";
  const boost::json::object object = object_of(flag, json);
  SamplingDefaults defaults;
  try {
    FieldReader fields(object);
    defaults.temperature = fields.number("temperature");
    defaults.top_p = fields.number("top_p");
    defaults.min_p = fields.number("min_p");
    defaults.repetition_penalty = fields.number("repetition_penalty");
    defaults.top_k = fields.integer("top_k", -1, std::numeric_limits<int32_t>::max());
    defaults.max_new_tokens = fields.integer("max_new_tokens", 1, std::numeric_limits<int32_t>::max());
    for (const std::string& name : fields.unknown()) throw Error(cat(flag, ": ", name, " is not supported yet"));
  } catch (const ApiError& error) {
    throw Error(cat(flag, ": ", error.what()));
  }
  check_range(defaults, flag);
  return defaults;
}

// The folder's own sampling values, for what neither the request nor --override-generation-config sets.
void take_generation_config(const std::string& json, const std::string& folder, SamplingDefaults& defaults) {
  if (json.empty()) return;
  try {
    const boost::json::object object = parse_json_object(json);
    FieldReader fields(object);
    const auto keep = [](auto& value, auto found) {
      if (!value) value = found;
    };
    keep(defaults.temperature, fields.number("temperature"));
    keep(defaults.top_p, fields.number("top_p"));
    keep(defaults.min_p, fields.number("min_p"));
    keep(defaults.repetition_penalty, fields.number("repetition_penalty"));
    keep(defaults.top_k, fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()));
    keep(defaults.max_new_tokens, fields.integer("max_new_tokens", 1, std::numeric_limits<int32_t>::max()));
  } catch (const ApiError& error) {
    throw Error(cat(folder, "/generation_config.json: ", error.what()));
  }
  check_range(defaults, folder + "/generation_config.json");
}

}  // namespace

std::shared_ptr<ServedModel> load_served_model(const config::ServeConfig& config) {
  auto model = std::make_shared<ServedModel>();
  model->names =
      config.model.served_names.empty() ? std::vector<std::string>{config.engine.model} : config.model.served_names;
  model->root = config.engine.model;
  model->default_template_kwargs = object_of("--default-chat-template-kwargs", config.model.default_template_kwargs);
  model->defaults = defaults_of(config.model.generation_defaults);
  model->priority_scheduling = config.engine.policy == engine::SchedulingPolicy::priority;

  const text::TextModel text_model = text::load_text_model(config.engine.model);
  model->tokenizer = text_model.tokenizer;
  model->end_ids = text_model.end_ids;
  if (config.model.use_generation_config) {
    const std::string& recommended =
        text_model.generation_config.empty() ? config.model.recommended_sampling : text_model.generation_config;
    take_generation_config(recommended, config.engine.model, model->defaults);
    if (!recommended.empty()) {
      LOG_INFO("Sampling values that requests leave open come from the model's generation config; ",
               "--generation-config vllm takes vLLM's");
    }
  }
  const std::string bos = text_model.bos, eos = text_model.eos;
  const text::ContentFormat format = format_named(config.model.content_format);
  const auto compile = [bos, eos, format](const std::string& source, const std::string& origin,
                                          uint64_t most_steps) -> RenderChat {
    const auto parsed = std::make_shared<text::ChatTemplate>(source, bos, eos, format, origin, most_steps);
    return [parsed](const boost::json::array& messages, const boost::json::object& kwargs) {
      return parsed->render(messages, kwargs);
    };
  };
  const TemplateSource own = template_source(config, text_model);
  model->render = compile(own.text, own.origin, 50'000'000);
  // A template out of a request is rendered while others wait: about 10 ms at most.
  model->compile_template = [compile](const std::string& source) {
    return compile(source, "chat template", 1'000'000);
  };
  return model;
}

}  // namespace gristmill::server
