#pragma once
#include <boost/json/array.hpp>
#include <string>
#include <string_view>

namespace gristmill::server::openai {

/// The request's messages, checked and reduced to what chat templates know: content as a string or as a list of text
/// parts, as it was sent (the template converts), tool-call arguments as objects, reasoning under both of its names.
/// Throws ApiError naming e.g. "messages[2].content[0].type".
boost::json::array template_messages(const boost::json::array& sent);

/// The text of a converted message.
std::string message_text(const boost::json::object& message);
/// Appends to the text of a converted message.
void append_to_message(boost::json::object& message, std::string_view text);

}  // namespace gristmill::server::openai
