#include "server/api_error.h"

#include <utility>

#include "server/json_writer.h"

namespace gristmill::server {

ApiError schema_error(const std::string& message, std::string param) {
  return ApiError(400, "Bad Request", message, std::move(param));
}

ApiError value_error(const std::string& message, std::string param) {
  return ApiError(400, "BadRequestError", message, std::move(param));
}

ApiError not_supported(const std::string& field, std::string_view what) {
  return ApiError(400, "BadRequestError", cat(field, ": ", what, " is not supported yet"), field);
}

ApiError unavailable(const std::string& message) {
  return ApiError(503, "ServiceUnavailableError", message);
}

void append_error_body(std::string& out, int status, std::string_view type, std::string_view message,
                       std::string_view param) {
  JsonWriter json(out);
  json.begin_object().key("error").begin_object();
  json.key("message").string(message);
  json.key("type").string(type);
  json.key("param");
  if (param.empty()) {
    json.null();
  } else {
    json.string(param);
  }
  json.key("code").integer(status).end_object().end_object();
}

Response error_response(const ApiError& error) {
  Response response;
  response.status = error.status();
  append_error_body(response.body, error.status(), error.type(), error.what(), error.param());
  if (error.status() == 503) response.set("Retry-After", "1");
  return response;
}

Response plain_error(int status, std::string_view message) {
  Response response;
  response.status = status;
  append_error_body(response.body, status, reason_phrase(status), message.empty() ? reason_phrase(status) : message,
                    {});
  return response;
}

std::string shorten(std::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace gristmill::server
