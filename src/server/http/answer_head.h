#pragma once
#include <string>

#include "server/http/message.h"

namespace gristmill::server {

enum class BodyFraming : uint8_t { length, chunked, until_close };

/// Appends status line and headers of `response`. Header values lose control characters, so that no text that came from
/// a client can split a header.
void append_head(std::string& out, const Response& response, int version, bool keep_alive, BodyFraming framing);

}  // namespace gristmill::server
