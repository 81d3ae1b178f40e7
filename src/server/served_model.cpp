#include "server/served_model.h"

#include <algorithm>
#include <boost/json/value.hpp>

#include "base/error.h"

namespace gristmill::server {
namespace json = boost::json;
namespace {

bool prints(const RenderChat& render, const json::value& content, std::string_view expected) {
  json::object kwargs;
  kwargs["add_generation_prompt"] = true;
  try {
    const std::string text = render({json::object{{"role", "user"}, {"content", content}}}, kwargs);
    // A list printed as such holds the text too, between the quotes of its printed form.
    return text.find(expected) != std::string::npos && text.find("'text'") == std::string::npos &&
           text.find("\"text\"") == std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

bool ServedModel::answers_to(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

ContentFormat detect_content_format(const RenderChat& render) {
  constexpr std::string_view probe = "Zebra crossing 7";
  if (prints(render, json::value(json::string(probe.data(), probe.size())), probe)) return ContentFormat::string;
  json::array parts;
  parts.push_back(json::object{{"type", "text"}, {"text", json::string(probe.data(), probe.size())}});
  return prints(render, parts, probe) ? ContentFormat::parts : ContentFormat::string;
}

}  // namespace gristmill::server
