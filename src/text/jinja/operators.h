#pragma once
#include "text/jinja/ast.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

/// Python's operators.
namespace gristmill::jinja {

class Interpreter;

Value apply(Operator op, const Value& left, const Value& right, Interpreter& interpreter);
/// Unary + and -.
Value apply_sign(Operator op, const Value& operand);
bool compare(Comparison comparison, const Value& left, const Value& right, Budget& budget);
/// `item in container`.
bool contains(const Value& container, const Value& item, Budget& budget);
/// Item `index` of a sequence, counted from the end if negative; missing if there is none.
Value item_at(const Value& sequence, int64_t index, Budget& budget);
/// `object[start:stop:step]`; None stands for what is left out.
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step, Budget& budget);
/// All items of an iterable.
List to_list(const Value& iterable, Budget& budget);

/// dict.fromkeys(keys, value), and dict(source): a copy of a dict, or made from pairs.
Value dict_from_keys(const Value& keys, const Value& value, Budget& budget);
Dict dict_from(const Value& source, Budget& budget);

bool is_hashable(const Value& key);
/// Accounts for the work of hashing and comparing a dict key.
void charge_key(const Value& key, Budget& budget);

// Arithmetic on its own, for filters.
Value add(const Value& left, const Value& right, Budget& budget);
/// floor(a / b) and a modulo b with the sign of b, as Python has them; b is not 0.
int64_t floor_divide(int64_t a, int64_t b);
int64_t floor_modulo(int64_t a, int64_t b);

}  // namespace gristmill::jinja
