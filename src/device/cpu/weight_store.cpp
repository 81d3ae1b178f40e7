#include "device/cpu/weight_store.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/error.h"

namespace gristmill::device::cpu {
namespace {

// Bytes of packed weights that one item of packing makes: a few megabytes of float32 in between at most.
constexpr size_t kItemBytes = 256 << 10;
// Bytes of packed weights after which the file's pages that they came from are given back: what loading takes beside
// the packed weights does not grow with the largest matrix.
constexpr size_t kWindowBytes = 64 << 20;

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
    int64_t first_panel, end_panel;  // of the window
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
  };
  const PackedWeight& form = entry.packed;
  Job job{entry,    region_.data() + entry.offset,
          progress, std::max<int64_t>(1, static_cast<int64_t>(kItemBytes / std::max<size_t>(1, form.panel_bytes))),
          0,        0,
          {},       {}};
  const auto run = [](void* context, uint32_t item, uint32_t) {
    Job& self = *static_cast<Job*>(context);
    const PackedWeight& packed = self.entry.packed;
    const int64_t first = self.first_panel + item * self.panels_per_item;
    const int64_t count = std::min(self.panels_per_item, self.end_panel - first);
    try {
      pack_panels(*self.entry.source, packed, first, count, self.data);
    } catch (...) {
      if (!self.failed.exchange(true)) self.failure = std::current_exception();
    }
    const uint64_t bytes = self.entry.source->file_bytes(), total = static_cast<uint64_t>(packed.panels());
    self.progress.advance(bytes * static_cast<uint64_t>(first + count) / total -
                          bytes * static_cast<uint64_t>(first) / total);
  };
  const int64_t window =
      std::max(job.panels_per_item, static_cast<int64_t>(kWindowBytes / std::max<size_t>(1, form.panel_bytes)));
  for (; job.first_panel < form.panels(); job.first_panel = job.end_panel) {
    job.end_panel = std::min(job.first_panel + window, form.panels());
    const int64_t panels = job.end_panel - job.first_panel;
    const Phase phase{run, &job, static_cast<uint32_t>((panels + job.panels_per_item - 1) / job.panels_per_item)};
    team.run({&phase, 1});
    if (job.failed) std::rethrow_exception(job.failure);
    const int64_t first_row = job.first_panel * form.panel;
    entry.source->release_rows(first_row, std::min(panels * form.panel, form.outputs - first_row));
  }
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
    // A source that serves as a matrix and as a vector has its pages back from the file when it is read again.
    entry->source->release();
  }
  progress.end();
}

}  // namespace gristmill::device::cpu
