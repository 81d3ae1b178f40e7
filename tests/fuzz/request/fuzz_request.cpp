// Request bodies: JSON reading, typed parsing and preparation must end in a Job or an ApiError, whatever the bytes are,
// and every refusal must be a valid JSON body.
#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "../../server/fake_model.h"
#include "server/api_error.h"
#include "server/json_request.h"
#include "server/openai/job.h"
#include "server/openai/messages.h"
#include "server/openai/tokenize.h"

namespace {

using namespace gristmill::server;

/// Prints every message's text; takes no interest in the other variables, which may be anything.
std::string render(const boost::json::array& messages, const boost::json::object&) {
  std::string out;
  for (const boost::json::value& message : messages) out += openai::message_text(message.get_object());
  return out;
}

void check_refusal(const ApiError& error) {
  const Response response = error_response(error);
  boost::system::error_code failure;
  boost::json::parse(response.body, failure);
  if (failure || response.status < 400 || response.status > 599) std::abort();
}

template <class Call>
void attempt(Call call) {
  try {
    call();
  } catch (const ApiError& error) {
    check_refusal(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<ServedModel> model = [] {
    auto made = fake_model(2048);
    made->render = render;
    return made;
  }();
  static const ApiPolicy policy = [] {
    ApiPolicy made;
    made.trust_request_chat_template = true;
    return made;
  }();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const boost::json::object object = parse_json_object(body);
    attempt([&] { openai::prepare_chat(openai::parse_chat_request(object), *model, policy); });
    attempt([&] { openai::prepare_completion(openai::parse_completion_request(object), *model, policy); });
    attempt([&] { openai::tokenize(object, *model, policy); });
    attempt([&] { openai::detokenize(object, *model); });
  });
  return 0;
}
