#pragma once
#include <boost/json/array.hpp>
#include <string>

#include "server/served_model.h"

namespace gristmill::server::openai {

/// The request's messages as the template sees them: known keys only, content in the wanted form for every role alike,
/// tool-call arguments as objects, reasoning under both of its names. Throws ApiError naming e.g.
/// "messages[2].content[0].type".
boost::json::array template_messages(const boost::json::array& sent, ContentFormat format);

/// The text of a converted message.
std::string message_text(const boost::json::object& message);
/// Appends to the text of a converted message.
void append_to_message(boost::json::object& message, std::string_view text);

}  // namespace gristmill::server::openai
