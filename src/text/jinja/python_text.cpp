#include "text/jinja/python_text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/error.h"
#include "text/jinja/object.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

constexpr char hex_digits[] = "0123456789abcdef";

void append_hex(std::string& out, char prefix, char32_t c, int digits) {
  out += '\\';
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += hex_digits[(c >> shift) & 15];
}

void append_escaped(std::string& out, char32_t c) {
  switch (c) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  if (unicode::is_printable(c)) {
    unicode::append(out, c);
  } else if (c >= unicode::stray_byte) {
    append_hex(out, 'x', c - unicode::stray_byte, 2);
  } else if (c < 0x100) {
    append_hex(out, 'x', c, 2);
  } else if (c < 0x10000) {
    append_hex(out, 'u', c, 4);
  } else {
    append_hex(out, 'U', c, 8);
  }
}

void append_quoted(std::string& out, std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = unicode::decode(text, at);
    if (c == static_cast<char32_t>(quote)) out += '\\';
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      out += static_cast<char>(c);
    } else {
      append_escaped(out, c);
    }
  }
  out += quote;
}

void append_float(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  // Python's rule: exponents from -4 to 15 are written out.
  const double size = std::fabs(value);
  char digits[400];
  if (size == 0 || (size >= 1e-4 && size < 1e16)) {
    const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr;
    std::string_view text(digits, static_cast<size_t>(end - digits));
    out += text;
    if (text.find('.') == text.npos) out += ".0";
  } else {
    const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
    out.append(digits, end);
  }
}

/// Writes str or repr of nested values while watching how long the text grows.
class Writer {
 public:
  Writer(std::string& out, size_t room, int level) : out_(out), level_(level) {
    end_ =
        room > std::numeric_limits<size_t>::max() - out.size() ? std::numeric_limits<size_t>::max() : out.size() + room;
  }

  void text(const Value& value) {
    switch (value.kind()) {
      case Kind::missing:
      case Kind::undefined:
        return;
      case Kind::string:
        check(value.string().size());
        out_ += value.string();
        return;
      default:
        representation(value);
    }
  }

  void representation(const Value& value) {
    switch (value.kind()) {
      case Kind::missing:
      case Kind::undefined:
        out_ += "Undefined";
        break;
      case Kind::none:
        out_ += "None";
        break;
      case Kind::boolean:
        out_ += value.boolean() ? "True" : "False";
        break;
      case Kind::integer:
        append_integer(value.integer());
        break;
      case Kind::real:
        append_float(out_, value.real());
        break;
      case Kind::string:
        string(value);
        break;
      default:
        nested(value);
    }
    check(0);
  }

 private:
  void nested(const Value& value) {
    level_ = depth_around(level_);
    switch (value.kind()) {
      case Kind::list:
        sequence(value.list(), "[", "]");
        break;
      case Kind::tuple:
        sequence(value.list(), "(", value.list().size() == 1 ? ",)" : ")");
        break;
      case Kind::dict:
        dict(value.dict());
        break;
      default:
        value.object().append_text(out_, end_ - out_.size(), level_);
        break;
    }
    --level_;
  }

  void check(size_t more) const {
    if (out_.size() + more > end_) throw TemplateError(Fault::limit, "the text of a value is longer than the limit");
  }

  void append_integer(int64_t value) {
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }

  void string(const Value& value) {
    check(value.string().size());
    if (value.is_markup()) out_ += "Markup(";
    append_quoted(out_, value.string());
    if (value.is_markup()) out_ += ')';
  }

  void sequence(const List& items, std::string_view open, std::string_view close) {
    out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      representation(items[i]);
    }
    out_ += close;
  }

  void dict(const Dict& items) {
    out_ += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      representation(items[i].key);
      out_ += ": ";
      representation(items[i].value);
    }
    out_ += '}';
  }

  std::string& out_;
  size_t end_;
  int level_;
};

}  // namespace

void append_text(std::string& out, const Value& value, size_t room) {
  Writer(out, room, 0).text(value);
}

void append_repr(std::string& out, const Value& value, size_t room, int level) {
  Writer(out, room, level).representation(value);
}

std::string to_text(const Value& value) {
  std::string out;
  append_text(out, value, std::numeric_limits<size_t>::max());
  return out;
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value, std::numeric_limits<size_t>::max());
  return out;
}

std::string quoted(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

std::string float_text(double value) {
  std::string out;
  append_float(out, value);
  return out;
}

}  // namespace gristmill::jinja
