#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace gristmill::jinja {

/// A Pratt parser over the tokens of a template: expressions, targets and arguments. Precedence, lowest first:
/// inline if, or, and, not, comparisons and in, + and -, ~, * / // %, **, unary - and +, postfix, filters and tests.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const ParseLimits& limits)
      : tokens_(std::move(tokens)), limits_(limits) {}

 protected:
  /// One level of brackets or blocks; bounds the recursion of the parser.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return current().kind == TokenKind::end ? current() : tokens_[at_++]; }
  bool skip_op(std::string_view sign);
  bool skip_name(std::string_view word);
  void expect_op(std::string_view sign);
  void expect_name(std::string_view word);
  void expect(TokenKind kind, std::string_view what);
  std::string take_name(std::string_view what);
  [[noreturn]] void syntax_error(Position at, const std::string& message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;

  ExpressionPtr parse_expression();
  /// An expression, or several with commas as a tuple. `end_word` may end it too.
  ExpressionPtr parse_tuple(bool with_conditional, std::string_view end_word = {}, bool in_parentheses = false);
  /// What may be assigned to: names, tuples of them, and `ns.name` where that is allowed.
  ExpressionPtr parse_target(bool with_namespace, std::string_view end_word = {});
  ArgumentList parse_arguments();
  /// A chain of filters on `input` (null in block filters); the first `|` may have been left out.
  ExpressionPtr parse_filters(ExpressionPtr input, bool inline_start);
  /// Checks the height of `parent` after `child` was put into it.
  void adopt(Expression& parent, const Expression* child) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  const ParseLimits& limits_;
  /// In a branch that may never run, where unknown filters and tests only fail when they do run.
  bool in_branch_ = false;
  int loop_nesting_ = 0;  ///< loops around, in which `loop` cannot be assigned to

 private:
  ExpressionPtr parse_binary(int least);
  ExpressionPtr parse_infix(ExpressionPtr left, int power);
  ExpressionPtr parse_compare(ExpressionPtr left);
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name_or_constant();
  ExpressionPtr parse_string();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_slice(Position at, ExpressionPtr object, ExpressionPtr start);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr parse_one_target(bool with_namespace);
  std::string parse_dotted_name(std::string_view what);
  bool starts_test_argument() const;
  bool at_tuple_end(std::string_view end_word) const;
  void adopt(Expression& parent, const ArgumentList& arguments) const;

  int nesting_ = 0;
};

}  // namespace gristmill::jinja
