#pragma once
#include <boost/json/fwd.hpp>

#include "text/jinja/value.h"

namespace gristmill::text {

/// The same data as a template's value. Throws RequestError("messages", ...) for nesting beyond 100 levels.
jinja::Value to_template_value(const boost::json::value& value);

/// Which kinds of `content` a template can print.
struct ContentSupport {
  bool strings = true;
  bool lists = false;
};

/// A request's messages as chat templates expect them (see ChatTemplate). Throws RequestError("messages", ...) naming
/// the message and the field that is wrong.
jinja::Value to_template_messages(const boost::json::array& messages, ContentSupport support);

}  // namespace gristmill::text
