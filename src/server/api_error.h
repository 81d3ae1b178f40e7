#pragma once
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/message.h"

namespace gristmill::server {

/// A refusal as clients see it: `{"error":{"message","type","param","code"}}` with the HTTP status as code.
class ApiError : public Error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = {})
      : Error(message), status_(status), type_(std::move(type)), param_(std::move(param)) {}
  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string type_;
  std::string param_;
};

/// A request that breaks the schema: wrong type, missing field, bad JSON.
ApiError schema_error(const std::string& message, std::string param = {});
/// A well-formed request that asks for something wrong.
ApiError value_error(const std::string& message, std::string param = {});
ApiError not_supported(const std::string& field, std::string_view what);
ApiError unavailable(const std::string& message);

void append_error_body(std::string& out, int status, std::string_view type, std::string_view message,
                       std::string_view param);
Response error_response(const ApiError& error);
/// The whole-route answers whose type is the status phrase ("Not Found").
Response plain_error(int status, std::string_view message = {});

/// At most `limit` bytes of a text that came from a client, cut at a character; for messages.
std::string shorten(std::string_view text, size_t limit = 128);

}  // namespace gristmill::server
