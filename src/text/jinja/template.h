#pragma once
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace gristmill::jinja {

struct Tree;

struct RenderOptions {
  Limits limits;
  /// The clock of strftime_now(); the local time now if empty.
  std::function<std::tm()> now;
};

/// A template in the dialect of Python's jinja2 3.1, set up as the transformers library does for chat templates:
/// sandboxed and immutable, trim_blocks and lstrip_blocks, break and continue, the generation tag, tojson without HTML
/// escaping, raise_exception() and strftime_now(). Left out: include, import, extends and block; the filters random,
/// urlize, striptags, wordwrap and pprint; integers beyond 64 bits.
///
/// Parsed once; rendering is const and may go on in several threads at once.
class Template {
 public:
  /// Throws TemplateError (syntax or limit) with line and column.
  static Template parse(std::string_view source, const ParseLimits& limits = {});
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// `context` holds the variables by name. Throws TemplateError with the line and column where it happened.
  std::string render(const Dict& context, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::unique_ptr<const Tree> tree);
  std::unique_ptr<const Tree> tree_;
};

}  // namespace gristmill::jinja
