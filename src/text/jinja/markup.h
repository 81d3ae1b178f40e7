#pragma once
#include <string>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

/// Text that is marked as HTML (markupsafe's Markup). The templates' own text is never escaped, but |safe and |escape
/// make marked text, and joining that with other text escapes the other.
namespace gristmill::jinja {

/// `text` with & < > ' and " as entities.
std::string escape_html(std::string_view text);
/// markupsafe.escape(value): marked text as it is, anything else as escaped text.
Value escaped(const Value& value, Budget& budget);
/// `text` as a value, marked if `like` is.
Value marked_like(const Value& like, std::string text);

}  // namespace gristmill::jinja
