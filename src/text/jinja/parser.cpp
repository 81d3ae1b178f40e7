#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/expression_parser.h"
#include "text/jinja/name_resolution.h"

namespace gristmill::jinja {
namespace {

/// Parses statements; the expressions inside them are the base class's work.
class Parser : private ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, const ParseLimits& limits) : ExpressionParser(std::move(tokens), limits) {}

  Body parse_template() { return parse_body({}, {}); }

 private:
  using Words = std::initializer_list<std::string_view>;

  /// Text, prints and statements up to a tag that starts with one of `end_words`; stops at that word. `opened` names
  /// the block, for messages.
  Body parse_body(Words end_words, std::string_view opened) {
    const Nesting nesting(*this);
    Body body;
    while (true) {
      const Token& token = current();
      switch (token.kind) {
        case TokenKind::text:
          body.push_back(std::make_unique<Text>(token.at, token.text));
          ++at_;
          break;
        case TokenKind::variable_begin:
          ++at_;
          body.push_back(std::make_unique<Print>(current().at, parse_tuple(true)));
          expect(TokenKind::variable_end, "'}}'");
          break;
        case TokenKind::block_begin:
          ++at_;
          if (std::any_of(end_words.begin(), end_words.end(), [&](auto word) { return current().is_name(word); })) {
            return body;
          }
          parse_statement(body, end_words, opened);
          expect(TokenKind::block_end, "'%}'");
          break;
        default:
          if (end_words.size() == 0) return body;
          syntax_error(token.at, cat("the template ends inside '", opened, "': ", listed(end_words), " is missing"));
      }
    }
  }

  static std::string listed(Words words) {
    std::string out;
    for (std::string_view word : words) out += cat(out.empty() ? "'" : " or '", word, "'");
    return out;
  }

  /// The body of a block, from behind its head to behind its end word.
  Body parse_block(Words end_words, std::string_view opened) {
    skip_op(":");
    expect(TokenKind::block_end, "'%}'");
    return parse_body(end_words, opened);
  }

  Body parse_block_to(std::string_view end_word, std::string_view opened) {
    Body body = parse_block({end_word}, opened);
    ++at_;
    return body;
  }

  void parse_statement(Body& body, Words end_words, std::string_view opened) {
    if (current().kind != TokenKind::name) unexpected("the name of a tag");
    const Position at = current().at;
    const std::string& tag = take().text;
    if (tag == "print") return parse_print(body);
    if (tag == "set") return body.push_back(parse_set(at));
    if (tag == "for") return body.push_back(parse_for(at));
    if (tag == "if") return body.push_back(parse_if(at));
    if (tag == "macro") return body.push_back(parse_macro(at));
    if (tag == "call") return body.push_back(parse_call_block(at));
    if (tag == "generation") return body.push_back(parse_generation(at));
    if (tag == "filter") return body.push_back(parse_filter_block(at));
    if (tag == "with") return body.push_back(parse_with(at));
    if (tag == "break" || tag == "continue") return body.push_back(parse_jump(at, tag == "break"));
    static constexpr std::string_view refused[] = {"include", "import", "from", "extends", "block", "autoescape"};
    if (std::find(std::begin(refused), std::end(refused), tag) != std::end(refused)) {
      syntax_error(at, cat("the tag '", tag, "' is not supported: a chat template is one file of plain text"));
    }
    std::string message = cat("there is no tag '", tag, "'");
    if (!opened.empty()) message += cat(" (", listed(end_words), " ends the open '", opened, "')");
    syntax_error(at, message);
  }

  void parse_print(Body& body) {
    bool first = true;
    while (current().kind != TokenKind::block_end) {
      if (!std::exchange(first, false)) expect_op(",");
      body.push_back(std::make_unique<Print>(current().at, parse_expression()));
    }
  }

  StatementPtr parse_set(Position at) {
    ExpressionPtr target = parse_target(true);
    if (skip_op("=")) {
      auto set = std::make_unique<Set>(at);
      set->target = std::move(target);
      set->value = parse_tuple(true);
      return set;
    }
    auto block = std::make_unique<SetBlock>(at);
    block->target = std::move(target);
    block->filter = parse_filters(nullptr, false);
    const bool outer_branch = std::exchange(in_branch_, false);
    block->body = parse_block_to("endset", "set");
    in_branch_ = outer_branch;
    return block;
  }

  StatementPtr parse_for(Position at) {
    auto loop = std::make_unique<Loop>(at);
    ++loop_nesting_;
    const size_t target_at = at_;
    loop->target = parse_target(false, "in");
    at_ = target_at;
    loop->test_target = parse_target(false, "in");
    expect_name("in");
    loop->source = parse_tuple(false, "recursive");
    const bool outer_branch = std::exchange(in_branch_, false);
    if (skip_name("if")) loop->test = parse_expression();
    loop->recursive = skip_name("recursive");
    ++enclosing_loops_;
    loop->body = parse_block({"endfor", "else"}, "for");
    --enclosing_loops_;
    const bool has_else = take().text == "else";
    if (has_else) loop->otherwise = parse_block_to("endfor", "for");
    in_branch_ = outer_branch;
    --loop_nesting_;
    return loop;
  }

  StatementPtr parse_if(Position at) {
    auto branch = std::make_unique<Branch>(at);
    const bool outer_branch = std::exchange(in_branch_, true);
    while (true) {
      ExpressionPtr condition = parse_tuple(false);
      Body body = parse_block({"elif", "else", "endif"}, "if");
      branch->cases.emplace_back(std::move(condition), std::move(body));
      const std::string& word = take().text;
      if (word == "elif") continue;
      if (word == "else") branch->otherwise = parse_block_to("endif", "if");
      break;
    }
    in_branch_ = outer_branch;
    return branch;
  }

  /// The body of a macro or call block: code of its own, in which the loops around cannot be left.
  void parse_function_body(Function& function, std::string_view end_word, std::string_view opened) {
    const bool outer_branch = std::exchange(in_branch_, false);
    const int outer_loops = std::exchange(enclosing_loops_, 0);
    function.body = parse_block_to(end_word, opened);
    in_branch_ = outer_branch;
    enclosing_loops_ = outer_loops;
  }

  void parse_signature(Function& function) {
    expect_op("(");
    while (!current().is_op(")")) {
      if (!function.parameters.empty()) expect_op(",");
      const Position at = current().at;
      function.parameters.push_back(std::make_unique<Name>(at, Value(take_name("the name of a parameter"))));
      if (skip_op("=")) {
        function.defaults.push_back(parse_expression());
      } else if (!function.defaults.empty()) {
        syntax_error(at, "a parameter without default follows one with a default");
      }
    }
    expect_op(")");
  }

  StatementPtr parse_macro(Position at) {
    const std::string name = take_name("the name of the macro");
    auto macro = std::make_unique<Macro>(at, Value(name));
    macro->function.name = name;
    parse_signature(macro->function);
    parse_function_body(macro->function, "endmacro", "macro");
    return macro;
  }

  StatementPtr parse_call_block(Position at) {
    auto block = std::make_unique<CallBlock>(at);
    if (current().is_op("(")) parse_signature(block->function);
    const Position call_at = current().at;
    block->call = parse_expression();
    if (block->call->kind != ExpressionKind::call) syntax_error(call_at, "expected the call of a macro after 'call'");
    parse_function_body(block->function, "endcall", "call");
    return block;
  }

  StatementPtr parse_generation(Position at) {
    auto block = std::make_unique<Generation>(at);
    parse_function_body(block->function, "endgeneration", "generation");
    return block;
  }

  StatementPtr parse_filter_block(Position at) {
    auto block = std::make_unique<FilterBlock>(at);
    block->filter = parse_filters(nullptr, true);
    const bool outer_branch = std::exchange(in_branch_, false);
    block->body = parse_block_to("endfilter", "filter");
    in_branch_ = outer_branch;
    return block;
  }

  StatementPtr parse_with(Position at) {
    auto with = std::make_unique<With>(at);
    while (current().kind != TokenKind::block_end) {
      if (!with->variables.empty()) expect_op(",");
      ExpressionPtr target = parse_target(false);
      expect_op("=");
      with->variables.emplace_back(std::move(target), parse_expression());
    }
    const bool outer_branch = std::exchange(in_branch_, false);
    with->body = parse_block_to("endwith", "with");
    in_branch_ = outer_branch;
    return with;
  }

  StatementPtr parse_jump(Position at, bool leaves) {
    if (enclosing_loops_ == 0) syntax_error(at, cat("'", leaves ? "break" : "continue", "' outside of a loop"));
    if (leaves) return std::make_unique<LeaveLoop>(at);
    return std::make_unique<NextRound>(at);
  }

  int enclosing_loops_ = 0;  ///< loops around that break and continue may refer to
};

}  // namespace

Tree parse(std::string_view source, const ParseLimits& limits) {
  if (source.size() > limits.source_bytes) {
    throw TemplateError(Fault::limit, cat("the template is longer than the limit of ", limits.source_bytes, " bytes"));
  }
  Tree tree;
  tree.body = Parser(tokenize(source), limits).parse_template();
  resolve_names(tree);
  return tree;
}

}  // namespace gristmill::jinja
