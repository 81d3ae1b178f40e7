#include "device/cpu/weight_store.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/error.h"

namespace gristmill::device::cpu {
namespace {

// Bytes of packed weights that one item of packing makes: a few megabytes of float32 in between at most.
constexpr size_t kItemBytes = 256 << 10;

}  // namespace

WeightStore::WeightStore(std::shared_ptr<const Program> program, const Kernels& kernels, bool exact)
    : program_(std::move(program)), kernels_(kernels), exact_(exact) {}

WeightStore::Entry& WeightStore::find(WeightRef ref, bool is_matrix) {
  const WeightDecl& decl = program_->weights().at(ref.id);
  if (decl.slice.ranks != 1)
    throw Error(cat(decl.source->name(), ": the CPU back end runs one rank; remove the slice"));
  std::unique_ptr<Entry>& entry = entries_[{decl.source.get(), is_matrix}];
  if (entry != nullptr) return *entry;
  entry = std::make_unique<Entry>();
  entry->source = decl.source.get();
  entry->is_matrix = is_matrix;
  if (is_matrix) {
    entry->packed = packed_form(*decl.source, kernels_, exact_);
    entry->offset = layout_.add(entry->packed.bytes());
  } else {
    entry->offset = layout_.add(sizeof(float) * static_cast<size_t>(decl.source->rows() * decl.source->columns()));
  }
  return *entry;
}

void WeightStore::interleave(WeightRef first, WeightRef second) {
  const WeightSource* const a = program_->weights().at(first.id).source.get();
  const WeightSource* const b = program_->weights().at(second.id).source.get();
  if (a == b || entries_.contains({a, true}) || entries_.contains({b, true})) return;
  Entry &even = find(first, true), &odd = find(second, true);  // neighbours in the layout, if of one size
  if (even.packed.panel_bytes != odd.packed.panel_bytes || even.packed.panels() != odd.packed.panels()) return;
  if (even.packed.panel_bytes % 64 != 0 || odd.offset != even.offset + even.packed.bytes()) return;
  odd.offset = even.offset + even.packed.panel_bytes;
  even.packed.panel_stride = odd.packed.panel_stride = 2 * even.packed.panel_bytes;
}

const PackedWeight& WeightStore::matrix(WeightRef ref) {
  return find(ref, true).packed;
}
const float* const& WeightStore::vector(WeightRef ref) {
  return find(ref, false).floats;
}

void WeightStore::pack(const Entry& entry, ComputeTeam& team, Progress& progress) {
  struct Job {
    const Entry& entry;
    std::byte* data;
    Progress& progress;
    int64_t panels_per_item;
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
  };
  const PackedWeight& form = entry.packed;
  Job job{entry,    region_.data() + entry.offset,
          progress, std::max<int64_t>(1, static_cast<int64_t>(kItemBytes / std::max<size_t>(1, form.panel_bytes))),
          {},       {}};
  const auto run = [](void* context, uint32_t item, uint32_t) {
    Job& self = *static_cast<Job*>(context);
    const PackedWeight& packed = self.entry.packed;
    const int64_t first = item * self.panels_per_item;
    const int64_t count = std::min(self.panels_per_item, packed.panels() - first);
    try {
      pack_panels(*self.entry.source, packed, first, count, self.data);
    } catch (...) {
      if (!self.failed.exchange(true)) self.failure = std::current_exception();
    }
    const uint64_t bytes = self.entry.source->file_bytes(), total = static_cast<uint64_t>(packed.panels());
    self.progress.advance(bytes * static_cast<uint64_t>(first + count) / total -
                          bytes * static_cast<uint64_t>(first) / total);
  };
  const Phase phase{run, &job, static_cast<uint32_t>((form.panels() + job.panels_per_item - 1) / job.panels_per_item)};
  team.run({&phase, 1});
  if (job.failed) std::rethrow_exception(job.failure);
}

void WeightStore::load(ComputeTeam& team, Progress& progress) {
  region_ = Region(layout_.size(), true, "weights");
  // In the order of the layout, which is the order of use: the file is read about as it lies.
  std::vector<Entry*> order;
  uint64_t file_bytes = 0;
  for (const auto& [key, entry] : entries_) {
    order.push_back(entry.get());
    file_bytes += entry->source->file_bytes();
  }
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  progress.begin("packing weights", file_bytes);
  for (Entry* entry : order) {
    if (entry->is_matrix) {
      pack(*entry, team, progress);
      entry->packed.data = region_.data() + entry->offset;
    } else {
      auto* const to = reinterpret_cast<float*>(region_.data() + entry->offset);
      entry->source->read_f32(0, entry->source->rows(), to);
      entry->floats = to;
      progress.advance(entry->source->file_bytes());
    }
  }
  // Only now: one source may serve as a matrix and as a vector.
  for (Entry* entry : order) entry->source->release();
  progress.end();
}

}  // namespace gristmill::device::cpu
