#include "device/reference/scratch_plan.h"

#include <algorithm>
#include <map>

#include "device/reference/delta_net.h"
#include "device/reference/experts.h"

namespace gristmill::device::reference {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

std::vector<Value> inputs_of(const Op& op) {
  return std::visit(Overloaded{[](const EmbedOp&) { return std::vector<Value>{}; },
                               [](const LinearOp& o) { return std::vector<Value>{o.in}; },
                               [](const AttentionOp& o) { return std::vector<Value>{o.q, o.k, o.v}; },
                               [](const ResidualOp& o) { return std::vector<Value>{o.x, o.y}; },
                               [](const GateOp& o) { return std::vector<Value>{o.x, o.gate}; },
                               [](const DeltaNetOp& o) { return std::vector<Value>{o.qkv, o.z, o.b, o.a}; },
                               [](const MoeOp& o) { return std::vector<Value>{o.in}; },
                               [](const NormOp& o) { return std::vector<Value>{o.in}; },
                               [](const TapOp& o) { return std::vector<Value>{o.in}; },
                               [](const RangeOp& o) { return std::vector<Value>{o.in}; },
                               [](const HeadOp& o) { return std::vector<Value>{o.in}; }},
                    op);
}

std::vector<Value> outputs_of(const Op& op) {
  return std::visit(
      Overloaded{[](const LinearOp& o) { return o.out; }, [](const TapOp&) { return std::vector<Value>{}; },
                 [](const RangeOp&) { return std::vector<Value>{}; },
                 [](const HeadOp&) { return std::vector<Value>{}; },
                 [](const auto& o) { return std::vector<Value>{o.out}; }},
      op);
}

}  // namespace

ScratchPlan plan_scratch(const Program& program, const Limits& limits) {
  ScratchPlan plan;
  const auto add = [&](size_t rows, size_t width) {
    const size_t at = plan.bytes;
    plan.bytes += (rows * width * sizeof(float) + 63) / 64 * 64;
    return at;
  };
  const auto tokens = static_cast<size_t>(limits.tokens);
  const auto width = [&](Value value) { return static_cast<size_t>(program.width(value)); };

  std::vector<size_t> last_use(program.values());
  for (size_t i = 0; i < program.ops().size(); ++i) {
    for (const Value value : outputs_of(program.ops()[i])) last_use[value.id] = i;
    for (const Value value : inputs_of(program.ops()[i])) last_use[value.id] = i;
  }

  plan.values.resize(program.values());
  std::multimap<size_t, size_t> free;  // width -> offset
  size_t widest_input = 0, widest_pair = 0, widest_heads = 0, head_width = 0, work = 0;
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    for (const Value value : outputs_of(op)) {
      const auto reused = free.find(width(value));
      if (reused == free.end()) {
        plan.values[value.id] = add(tokens, width(value));
      } else {
        plan.values[value.id] = reused->second;
        free.erase(reused);
      }
    }
    // Every value dies once, also one that is named twice or never read.
    std::vector<Value> ending = inputs_of(op);
    const std::vector<Value> outputs = outputs_of(op);
    ending.insert(ending.end(), outputs.begin(), outputs.end());
    std::sort(ending.begin(), ending.end(), [](Value a, Value b) { return a.id < b.id; });
    ending.erase(std::unique(ending.begin(), ending.end()), ending.end());
    for (const Value value : ending)
      if (last_use[value.id] == i) free.emplace(width(value), plan.values[value.id]);

    if (const auto* linear = std::get_if<LinearOp>(&op)) {
      if (linear->norm) widest_input = std::max(widest_input, width(linear->in));
      if (linear->activation == Activation::silu_mul) widest_pair = std::max(widest_pair, width(linear->out[0]));
    } else if (const auto* attention = std::get_if<AttentionOp>(&op)) {
      widest_heads = std::max(widest_heads, width(attention->q) + width(attention->k));
    } else if (const auto* delta_net = std::get_if<DeltaNetOp>(&op)) {
      const DeltaNetLayout layout(program.states()[delta_net->delta_net.state.id]);
      work = std::max(work, delta_net_work(layout, delta_net->delta_net));
    } else if (const auto* moe = std::get_if<MoeOp>(&op)) {
      work = std::max(work, experts_work(moe->moe, program.width(moe->in)));
    } else if (const auto* head = std::get_if<HeadOp>(&op)) {
      head_width = width(head->in);
    }
  }
  plan.normed = add(tokens, widest_input);
  plan.up = add(tokens, widest_pair);
  plan.rotated = add(1, widest_heads);
  plan.work = add(1, work);
  plan.scores = add(1, static_cast<size_t>(limits.context));
  plan.head_rows = add(static_cast<size_t>(limits.rows), head_width);
  plan.logits = add(static_cast<size_t>(limits.rows), static_cast<size_t>(program.vocabulary()));
  plan.taps = add(static_cast<size_t>(program.taps()) * tokens, static_cast<size_t>(program.tap_width()));
  return plan;
}

}  // namespace gristmill::device::reference
