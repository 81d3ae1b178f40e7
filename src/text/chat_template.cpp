#include "text/chat_template.h"

#include <boost/json.hpp>

#include "base/error.h"
#include "text/chat_messages.h"
#include "text/jinja/error.h"
#include "text/jinja/template.h"

namespace gristmill::text {
namespace {

namespace json = boost::json;

constexpr std::string_view probe_text = "q7ZrobeTextW4k";
constexpr std::string_view probe_tag = "q7ZrobeTagW4k";

jinja::Template parse(const std::string& source, const std::string& origin) {
  try {
    return jinja::Template::parse(source);
  } catch (const jinja::TemplateError& error) {
    throw Error(cat(origin, ": ", error.what()));
  }
}

}  // namespace

const char* const default_chat_template =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct ChatTemplate::Impl {
  Impl(const std::string& source, std::string bos_token, std::string eos_token, const std::string& origin,
       uint64_t most_steps)
      : parsed(parse(source, origin)), bos(std::move(bos_token)), eos(std::move(eos_token)), steps(most_steps) {}

  jinja::Dict context(jinja::Value messages, const json::object& kwargs) const {
    jinja::Dict variables{{"bos_token", bos},
                          {"eos_token", eos},
                          {"tools", nullptr},
                          {"documents", nullptr},
                          {"add_generation_prompt", false}};
    for (const auto& [name, value] : kwargs) {
      variables.set(std::string_view(name.data(), name.size()), to_template_value(value));
    }
    variables.set("messages", std::move(messages));
    return variables;
  }

  // Renders one user message with `content`; empty when the template raises.
  std::string probe(jinja::Value content) const {
    jinja::RenderOptions options;
    options.limits.steps = std::min<uint64_t>(steps, 2'000'000);
    try {
      jinja::List messages{jinja::Dict{{"role", "user"}, {"content", std::move(content)}}};
      return parsed.render(context(std::move(messages), {}), options);
    } catch (const jinja::TemplateError&) {
      return {};
    }
  }

  // A template that handles lists prints the text of a part; one that does not prints the whole part in some notation,
  // and with it the tag, or fails.
  ContentSupport find_support() const {
    ContentSupport found;
    const std::string from_list =
        probe(jinja::List{jinja::Dict{{"type", "text"}, {"text", probe_text}, {"tag", probe_tag}}});
    found.lists = from_list.find(probe_text) != std::string::npos && from_list.find(probe_tag) == std::string::npos;
    found.strings = !found.lists || probe(probe_text).find(probe_text) != std::string::npos;
    return found;
  }

  jinja::Template parsed;
  jinja::Value bos, eos;
  uint64_t steps;
  ContentSupport support;
};

ChatTemplate::ChatTemplate(const std::string& source, std::string bos_token, std::string eos_token,
                           ContentFormat format, const std::string& origin, uint64_t most_steps)
    : impl_(std::make_unique<Impl>(source, std::move(bos_token), std::move(eos_token), origin, most_steps)) {
  switch (format) {
    case ContentFormat::automatic:
      impl_->support = impl_->find_support();
      break;
    case ContentFormat::string:
      impl_->support = {true, false};
      break;
    case ContentFormat::openai:
      impl_->support = {false, true};
      break;
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

bool ChatTemplate::takes_content_lists() const {
  return impl_->support.lists;
}

std::string ChatTemplate::render(const json::array& messages, const json::object& kwargs) const {
  const jinja::Dict context = impl_->context(to_template_messages(messages, impl_->support), kwargs);
  jinja::RenderOptions options;
  options.limits.steps = impl_->steps;
  try {
    return impl_->parsed.render(context, options);
  } catch (const jinja::TemplateError& error) {
    // What a template says itself is meant for the user; other faults need the place.
    throw RequestError("messages",
                       error.fault() == jinja::Fault::raised ? error.message() : cat("chat template: ", error.what()));
  }
}

}  // namespace gristmill::text
