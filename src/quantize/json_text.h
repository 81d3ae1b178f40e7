#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace gristmill::quantize {

/// A JSON string with its quotes.
std::string json_string(std::string_view text);
/// A value as indented JSON text. Numbers that were written without fraction stay so.
std::string json_text(const Json& value, int indent = 0);

}  // namespace gristmill::quantize
