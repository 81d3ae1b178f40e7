#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <optional>

namespace gristmill::jinja {
namespace {

/// Levels of one expression's tree. A chain such as a + b + c is one level for each operator.
constexpr int max_height = 600;

// Binding powers of the infix operators; a right operand binds one tighter than its operator.
enum Power : int {
  power_or = 1,
  power_and,
  power_not,
  power_compare,
  power_sum,
  power_concat,
  power_product,
  power_power
};

std::optional<Comparison> comparison_of(const Token& token, const Token& next) {
  static constexpr std::pair<std::string_view, Comparison> signs[] = {
      {"==", Comparison::equal},      {"!=", Comparison::not_equal}, {"<", Comparison::less},
      {"<=", Comparison::less_equal}, {">", Comparison::greater},    {">=", Comparison::greater_equal}};
  if (token.is_name("in")) return Comparison::in;
  if (token.is_name("not") && next.is_name("in")) return Comparison::not_in;
  if (token.kind != TokenKind::op) return std::nullopt;
  for (const auto& [sign, comparison] : signs) {
    if (token.text == sign) return comparison;
  }
  return std::nullopt;
}

std::optional<Operator> operator_of(const Token& token) {
  static constexpr std::pair<std::string_view, Operator> signs[] = {
      {"+", Operator::add},           {"-", Operator::subtract}, {"*", Operator::multiply}, {"/", Operator::divide},
      {"//", Operator::floor_divide}, {"%", Operator::modulo},   {"**", Operator::power}};
  for (const auto& [sign, op] : signs) {
    if (token.is_op(sign)) return op;
  }
  return std::nullopt;
}

/// The power of the infix operator at `token`, or 0.
int infix_power(const Token& token, const Token& next) {
  if (token.is_name("or")) return power_or;
  if (token.is_name("and")) return power_and;
  if (comparison_of(token, next)) return power_compare;
  if (token.is_op("~")) return power_concat;
  const auto op = operator_of(token);
  if (!op) return 0;
  if (*op == Operator::add || *op == Operator::subtract) return power_sum;
  return *op == Operator::power ? power_power : power_product;
}

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= parser_.limits_.nesting) {
    throw TemplateError(Fault::limit, cat("brackets or blocks are nested deeper than ", parser_.limits_.nesting),
                        parser_.current().at);
  }
  ++parser_.nesting_;
}

bool ExpressionParser::skip_op(std::string_view sign) {
  if (!current().is_op(sign)) return false;
  ++at_;
  return true;
}

bool ExpressionParser::skip_name(std::string_view word) {
  if (!current().is_name(word)) return false;
  ++at_;
  return true;
}

void ExpressionParser::expect_op(std::string_view sign) {
  if (!skip_op(sign)) unexpected(cat("'", sign, "'"));
}

void ExpressionParser::expect_name(std::string_view word) {
  if (!skip_name(word)) unexpected(cat("'", word, "'"));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) unexpected(what);
  ++at_;
}

std::string ExpressionParser::take_name(std::string_view what) {
  if (current().kind != TokenKind::name) unexpected(what);
  return take().text;
}

void ExpressionParser::syntax_error(Position at, const std::string& message) const {
  throw TemplateError(Fault::syntax, message, at);
}

void ExpressionParser::unexpected(std::string_view wanted) const {
  syntax_error(current().at, cat("expected ", wanted, ", got ", describe(current())));
}

void ExpressionParser::adopt(Expression& parent, const Expression* child) const {
  if (!child) return;
  parent.height = std::max(parent.height, static_cast<int16_t>(child->height + 1));
  if (parent.height > max_height) {
    throw TemplateError(Fault::limit, cat("an expression is nested deeper than ", max_height, " levels"), parent.at);
  }
}

void ExpressionParser::adopt(Expression& parent, const ArgumentList& arguments) const {
  for (const auto& argument : arguments.positional) adopt(parent, argument.get());
  for (const auto& argument : arguments.named) adopt(parent, argument.second.get());
  adopt(parent, arguments.spread.get());
  adopt(parent, arguments.named_spread.get());
}

ExpressionPtr ExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  const Position at = current().at;
  ExpressionPtr node = parse_binary(power_or);
  while (skip_name("if")) {
    const bool outer = std::exchange(in_branch_, true);
    ExpressionPtr condition = parse_binary(power_or);
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    in_branch_ = outer;
    auto conditional = std::make_unique<Conditional>(at, std::move(condition), std::move(node), std::move(otherwise));
    for (const auto* part : {&conditional->condition, &conditional->then, &conditional->otherwise}) {
      adopt(*conditional, part->get());
    }
    node = std::move(conditional);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_word, bool in_parentheses) {
  const Position at = current().at;
  auto tuple = std::make_unique<Sequence>(at, true);
  bool has_comma = false;
  while (!at_tuple_end(end_word)) {
    tuple->items.push_back(with_conditional ? parse_expression() : parse_binary(power_or));
    if (!skip_op(",")) break;
    has_comma = true;
  }
  if (!has_comma) {
    if (!tuple->items.empty()) return std::move(tuple->items.front());
    if (!in_parentheses) unexpected("an expression");
  }
  for (const auto& item : tuple->items) adopt(*tuple, item.get());
  return tuple;
}

bool ExpressionParser::at_tuple_end(std::string_view end_word) const {
  const Token& token = current();
  return token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end || token.is_op(")") ||
         (!end_word.empty() && token.is_name(end_word));
}

ExpressionPtr ExpressionParser::parse_binary(int least) {
  ExpressionPtr left;
  if (least <= power_not && current().is_name("not")) {
    const Nesting nesting(*this);
    const Position at = take().at;
    auto negation = std::make_unique<Unary>(at, Operator::logical_not, parse_binary(power_not));
    adopt(*negation, negation->operand.get());
    left = std::move(negation);
  } else {
    left = parse_unary(true);
  }
  while (true) {
    const int power = infix_power(current(), following());
    if (power == 0 || power < least) return left;
    left = parse_infix(std::move(left), power);
  }
}

ExpressionPtr ExpressionParser::parse_infix(ExpressionPtr left, int power) {
  const Position at = current().at;
  if (power == power_compare) return parse_compare(std::move(left));
  if (power == power_or || power == power_and) {
    const std::string_view word = power == power_and ? "and" : "or";
    auto chain = std::make_unique<Logic>(at, power == power_and);
    adopt(*chain, left.get());
    chain->operands.push_back(std::move(left));
    while (skip_name(word)) {
      chain->operands.push_back(parse_binary(power + 1));
      adopt(*chain, chain->operands.back().get());
    }
    return chain;
  }
  if (power == power_concat) {
    auto chain = std::make_unique<Concat>(at);
    adopt(*chain, left.get());
    chain->parts.push_back(std::move(left));
    while (skip_op("~")) {
      chain->parts.push_back(parse_binary(power + 1));
      adopt(*chain, chain->parts.back().get());
    }
    return chain;
  }
  const Operator op = operator_of(current()).value_or(Operator::add);  // the power says that it is one
  ++at_;
  auto binary = std::make_unique<Binary>(at, op, std::move(left), parse_binary(power + 1));
  adopt(*binary, binary->left.get());
  adopt(*binary, binary->right.get());
  return binary;
}

ExpressionPtr ExpressionParser::parse_compare(ExpressionPtr left) {
  auto chain = std::make_unique<Compare>(current().at, std::move(left));
  adopt(*chain, chain->first.get());
  while (const auto comparison = comparison_of(current(), following())) {
    at_ += *comparison == Comparison::not_in ? 2 : 1;
    chain->links.emplace_back(*comparison, parse_binary(power_compare + 1));
    adopt(*chain, chain->links.back().second.get());
  }
  return chain;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr node;
  if (current().is_op("-") || current().is_op("+")) {
    const Nesting nesting(*this);
    const Token& sign = take();
    auto unary =
        std::make_unique<Unary>(sign.at, sign.text == "-" ? Operator::negate : Operator::plus, parse_unary(false));
    adopt(*unary, unary->operand.get());
    node = std::move(unary);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::name:
      return parse_name_or_constant();
    case TokenKind::string:
      return parse_string();
    case TokenKind::integer:
    case TokenKind::real: {
      const Position at = token.at;
      return std::make_unique<Literal>(at, take().number);
    }
    default:
      break;
  }
  if (token.is_op("(")) {
    ++at_;
    ExpressionPtr inner = parse_tuple(true, {}, true);
    expect_op(")");
    return inner;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dict();
  unexpected("an expression");
}

ExpressionPtr ExpressionParser::parse_name_or_constant() {
  const Token& token = take();
  if (token.text == "true" || token.text == "True") return std::make_unique<Literal>(token.at, Value(true));
  if (token.text == "false" || token.text == "False") return std::make_unique<Literal>(token.at, Value(false));
  if (token.text == "none" || token.text == "None") return std::make_unique<Literal>(token.at, Value(nullptr));
  return std::make_unique<Name>(token.at, Value(token.text));
}

ExpressionPtr ExpressionParser::parse_string() {
  const Position at = current().at;
  std::string text;
  while (current().kind == TokenKind::string) text += take().text;
  return std::make_unique<Literal>(at, Value(std::move(text)));
}

ExpressionPtr ExpressionParser::parse_list() {
  auto list = std::make_unique<Sequence>(current().at, false);
  expect_op("[");
  while (!current().is_op("]")) {
    if (!list->items.empty()) expect_op(",");
    if (current().is_op("]")) break;
    list->items.push_back(parse_expression());
    adopt(*list, list->items.back().get());
  }
  expect_op("]");
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto dict = std::make_unique<DictDisplay>(current().at);
  expect_op("{");
  while (!current().is_op("}")) {
    if (!dict->items.empty()) expect_op(",");
    if (current().is_op("}")) break;
    ExpressionPtr key = parse_expression();
    expect_op(":");
    dict->items.emplace_back(std::move(key), parse_expression());
    adopt(*dict, dict->items.back().first.get());
    adopt(*dict, dict->items.back().second.get());
  }
  expect_op("}");
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (current().is_op(".")) {
      node = parse_attribute(std::move(node));
    } else if (current().is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  expect_op(".");
  const Position at = current().at;
  ExpressionPtr node;
  if (current().kind == TokenKind::name) {
    node = std::make_unique<Attribute>(at, std::move(object), Value(take().text));
    adopt(*node, static_cast<Attribute&>(*node).object.get());
  } else if (current().kind == TokenKind::integer) {
    node = std::make_unique<Subscript>(at, std::move(object), std::make_unique<Literal>(at, take().number));
    adopt(*node, static_cast<Subscript&>(*node).object.get());
  } else {
    unexpected("a name or number after '.'");
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const Position at = current().at;
  expect_op("[");
  if (current().is_op(":")) return parse_slice(at, std::move(object), nullptr);
  ExpressionPtr index = parse_expression();
  if (current().is_op(":")) return parse_slice(at, std::move(object), std::move(index));
  if (current().is_op(",")) {
    auto tuple = std::make_unique<Sequence>(at, true);
    tuple->items.push_back(std::move(index));
    while (skip_op(",") && !current().is_op("]")) tuple->items.push_back(parse_expression());
    for (const auto& item : tuple->items) adopt(*tuple, item.get());
    index = std::move(tuple);
  }
  expect_op("]");
  auto node = std::make_unique<Subscript>(at, std::move(object), std::move(index));
  adopt(*node, node->object.get());
  adopt(*node, node->index.get());
  return node;
}

ExpressionPtr ExpressionParser::parse_slice(Position at, ExpressionPtr object, ExpressionPtr start) {
  auto node = std::make_unique<Slice>(at, std::move(object));
  node->start = std::move(start);
  expect_op(":");
  if (!current().is_op(":") && !current().is_op("]")) node->stop = parse_expression();
  if (skip_op(":") && !current().is_op("]")) node->step = parse_expression();
  expect_op("]");
  for (const auto* part : {&node->object, &node->start, &node->stop, &node->step}) adopt(*node, part->get());
  return node;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const Position at = callee->at;
  auto node = std::make_unique<Call>(at, std::move(callee));
  node->arguments = parse_arguments();
  adopt(*node, node->callee.get());
  adopt(*node, node->arguments);
  return node;
}

ArgumentList ExpressionParser::parse_arguments() {
  ArgumentList list;
  const Position open = current().at;
  expect_op("(");
  const auto ensure = [&](bool right) {
    if (!right) syntax_error(open, "the arguments of this call are in a wrong order");
  };
  bool first = true;
  while (!current().is_op(")")) {
    if (!first) expect_op(",");
    if (!first && current().is_op(")")) break;
    first = false;
    if (skip_op("*")) {
      ensure(!list.spread && !list.named_spread);
      list.spread = parse_expression();
    } else if (skip_op("**")) {
      ensure(!list.named_spread);
      list.named_spread = parse_expression();
    } else if (current().kind == TokenKind::name && following().is_op("=")) {
      ensure(!list.named_spread);
      std::string name = take().text;
      expect_op("=");
      for (const auto& other : list.named) {
        if (other.first == name) syntax_error(open, cat("the argument '", name, "' is given twice"));
      }
      list.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!list.spread && !list.named_spread && list.named.empty());
      list.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return list;
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (current().is_op("|")) {
      node = parse_filters(std::move(node), false);
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

std::string ExpressionParser::parse_dotted_name(std::string_view what) {
  std::string name = take_name(what);
  while (skip_op(".")) name += "." + take_name(what);
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input, bool inline_start) {
  while (inline_start || skip_op("|")) {
    inline_start = false;
    const Position at = current().at;
    auto node = std::make_unique<Filter>(at, std::move(input), parse_dotted_name("the name of a filter"));
    node->function = find_filter(node->name);
    if (!node->function && !in_branch_) syntax_error(at, cat("there is no filter '", node->name, "'"));
    if (current().is_op("(")) node->arguments = parse_arguments();
    adopt(*node, node->input.get());
    adopt(*node, node->arguments);
    input = std::move(node);
  }
  return input;
}

bool ExpressionParser::starts_test_argument() const {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::name:
      return token.text != "else" && token.text != "or" && token.text != "and";
    case TokenKind::string:
    case TokenKind::integer:
    case TokenKind::real:
      return true;
    default:
      return token.is_op("[") || token.is_op("{");
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  expect_name("is");
  const bool negated = skip_name("not");
  const Position at = current().at;
  auto node = std::make_unique<Test>(at, std::move(input), parse_dotted_name("the name of a test"));
  node->function = find_test(node->name);
  if (!node->function && !in_branch_) syntax_error(at, cat("there is no test '", node->name, "'"));
  if (current().is_op("(")) {
    node->arguments = parse_arguments();
  } else if (starts_test_argument()) {
    if (current().is_name("is")) syntax_error(current().at, "tests with 'is' cannot be chained");
    node->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  adopt(*node, node->input.get());
  adopt(*node, node->arguments);
  if (!negated) return node;
  auto negation = std::make_unique<Unary>(at, Operator::logical_not, std::move(node));
  adopt(*negation, negation->operand.get());
  return negation;
}

ExpressionPtr ExpressionParser::parse_target(bool with_namespace, std::string_view end_word) {
  const Nesting nesting(*this);
  const Position at = current().at;
  ExpressionPtr first = parse_one_target(with_namespace);
  if (!current().is_op(",")) return first;
  auto tuple = std::make_unique<Sequence>(at, true);
  tuple->items.push_back(std::move(first));
  while (skip_op(",") && !at_tuple_end(end_word)) {
    tuple->items.push_back(parse_one_target(with_namespace));
  }
  for (const auto& item : tuple->items) adopt(*tuple, item.get());
  return tuple;
}

ExpressionPtr ExpressionParser::parse_one_target(bool with_namespace) {
  if (skip_op("(")) {
    ExpressionPtr inner = parse_target(false);
    expect_op(")");
    return inner;
  }
  if (current().kind != TokenKind::name) unexpected("a name to assign to");
  const Token& token = take();
  static constexpr std::string_view constants[] = {"true", "True", "false", "False", "none", "None"};
  if (std::find(std::begin(constants), std::end(constants), token.text) != std::end(constants)) {
    syntax_error(token.at, cat("cannot assign to '", token.text, "'"));
  }
  if (with_namespace && skip_op(".")) {
    return std::make_unique<NamespaceTarget>(token.at, Value(token.text), Value(take_name("a name after '.'")));
  }
  if (token.text == "loop" && loop_nesting_ > 0) syntax_error(token.at, "cannot assign to 'loop' inside a loop");
  return std::make_unique<Name>(token.at, Value(token.text));
}

}  // namespace gristmill::jinja
