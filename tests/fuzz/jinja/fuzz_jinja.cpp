#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

// A template must never do more than render, or throw an Error: whatever it holds and whatever it is given. The input
// is a template, and behind a zero byte, if there is one, the JSON of its context.

namespace {

using namespace gristmill::jinja;

constexpr std::string_view usual_context = R"({
  "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 世界 😀"},
               {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 5, "list": [3, 1, 2], "text": "a b,c"})";

Dict context_of(std::string_view json) {
  try {
    const Value value = parse_json(json);
    return value.is_dict() ? value.dict() : Dict();
  } catch (const gristmill::Error&) {
    return parse_json(usual_context).dict();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  RenderOptions options;
  options.limits.steps = 100'000;
  options.limits.memory_bytes = 1 << 20;
  options.limits.output_bytes = 1 << 18;
  try {
    const Template parsed = Template::parse(input.substr(0, zero));
    const Dict context = context_of(zero == input.npos ? std::string_view() : input.substr(zero + 1));
    const std::string text = parsed.render(context, options);
    if (text.size() > options.limits.output_bytes) __builtin_trap();
  } catch (const TemplateError& error) {
    // Every fault has a place in the template, but for a source that is too long to look at.
    if (error.line() < 1 || error.column() < 1) __builtin_trap();
  }
  return 0;
}
