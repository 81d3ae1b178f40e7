#include "device/cpu/weight_store.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

namespace gristmill::device::cpu {
namespace {

// Bytes of packed weights that one item of packing makes: a few megabytes of float32 in between at most.
constexpr size_t kItemBytes = 256 << 10;
// Bytes of packed weights after which the file's pages that they came from are given back: what loading takes beside
// the packed weights does not grow with the largest matrix.
constexpr size_t kWindowBytes = 64 << 20;
// Weights from the cache that are smaller are copied, which takes a moment and gives them huge pages.
constexpr size_t kMapBytes = 512 << 20;

}  // namespace

WeightStore::WeightStore(std::shared_ptr<const Program> program, const Kernels& kernels, bool exact)
    : program_(std::move(program)), kernels_(kernels), exact_(exact) {}

WeightStore::~WeightStore() {
  stop_ = true;
  if (background_.joinable()) background_.join();
}

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

std::vector<WeightStore::Entry*> WeightStore::in_order() const {
  std::vector<Entry*> order;
  for (const auto& [key, entry] : entries_) order.push_back(entry.get());
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  return order;
}

std::string WeightStore::cache_key() const {
  std::string layout;
  for (const Entry* entry : in_order()) {
    const PackedWeight& p = entry->packed;
    layout += cat(entry->source->name(), " ", entry->source->rows(), " ", entry->source->columns(), " at ",
                  entry->offset, entry->is_matrix ? " " : " vector");
    if (entry->is_matrix) {
      layout += cat(name_of(p.cls), p.has_min, p.biased, p.complements, " ", p.zero, " ", p.panel, " ", p.group, " ",
                    p.block_bytes, " ", p.panel_bytes, " ", p.panel_stride);
      if (p.input) layout += cat(" ", p.input->scale, " ", p.input->offset);
    }
    layout += "\n";
  }
  return cat(cache_.identity, "packing ", kPackingVersion, " for ", kernels_.name, ", rank 0 of 1\nlayout ",
             digest(layout), "\n");
}

bool WeightStore::open_cache(const WeightCacheOptions& options) {
  if (options.directory.empty() || options.identity.empty() || bytes() < std::max<size_t>(1, options.least_bytes))
    return false;
  cache_ = options;
  cached_ = find_cached_weights(cache_, cache_key(), bytes());
  if (cached_ == nullptr) return false;
  in_place_ =
      options.residence == Residence::mapped || (options.residence == Residence::automatic && bytes() >= kMapBytes);
  return in_place_;
}

void WeightStore::place() {
  for (Entry* entry : in_order()) {
    if (entry->is_matrix) {
      entry->packed.data = region_.data() + entry->offset;
    } else {
      entry->floats = reinterpret_cast<const float*>(region_.data() + entry->offset);
    }
  }
}

void WeightStore::start_background(std::function<void()> work) {
  try {
    background_ = std::thread([run = std::move(work)] {
      run_in_background();
      run();
    });
  } catch (const std::system_error& error) {
    LOG_WARNING("Weight cache: no thread for it: ", error.what());
  }
}

bool WeightStore::read_cached(ComputeTeam& team, Progress& progress) {
  struct Job {
    const CachedWeights& from;
    std::byte* to;
    Progress& progress;
    std::atomic<bool> failed{false};
  };
  region_ = Region(layout_.size(), true, "weights");
  Job job{*cached_, region_.data(), progress, {}};
  progress.begin("reading packed weights", bytes());
  const auto run = [](void* context, uint32_t item, uint32_t) {
    Job& self = *static_cast<Job*>(context);
    if (self.failed) return;
    if (!self.from.read_chunk(item, self.to + item * kCacheChunk)) self.failed = true;
    self.progress.advance(self.from.chunk_bytes(item));
  };
  const Phase phase{run, &job, static_cast<uint32_t>(cached_->chunks())};
  team.run({&phase, 1});
  progress.end();
  return !job.failed;
}

void WeightStore::check_mapped() {
  for (size_t i = 0; i < cached_->chunks(); ++i) {
    if (stop_.load(std::memory_order_relaxed)) return;
    if (cached_->check_chunk(i, region_.data())) continue;
    const std::string why = cat("its weights are damaged in the MiB at ", i * kCacheChunk);
    drop_cached_weights(cached_->path(), why);
    fault_ = cat(cached_->path(), ": ", why, "; they are packed anew at the next start");
    damaged_.store(true, std::memory_order_release);
    return;
  }
}

void WeightStore::load(ComputeTeam& team, Progress& progress) {
  if (cached_ != nullptr && in_place_) {
    region_ = cached_->map();
    place();
    LOG_INFO("Weight cache: weights are used in place in ", cached_->path());
    start_background([this] { check_mapped(); });
    return;
  }
  if (cached_ != nullptr) {
    const bool read = read_cached(team, progress);
    if (read) LOG_INFO("Weight cache: weights were read from ", cached_->path());
    if (!read) drop_cached_weights(cached_->path(), "its weights are damaged");
    cached_.reset();
    if (read) return place();
  }
  pack_all(team, progress);
  place();
  if (!cache_.directory.empty())
    start_background([this] { keep_weights(cache_, cache_key(), {region_.data(), region_.size()}, stop_); });
}

void WeightStore::pack_all(ComputeTeam& team, Progress& progress) {
  region_ = Region(layout_.size(), true, "weights");
  // The file is read about as it lies.
  const std::vector<Entry*> order = in_order();
  uint64_t file_bytes = 0;
  for (const Entry* entry : order) file_bytes += entry->source->file_bytes();
  progress.begin("packing weights", file_bytes);
  for (const Entry* entry : order) {
    if (entry->is_matrix) {
      pack(*entry, team, progress);
    } else {
      entry->source->read_f32(0, entry->source->rows(), reinterpret_cast<float*>(region_.data() + entry->offset));
      progress.advance(entry->source->file_bytes());
    }
    // A source that serves as a matrix and as a vector has its pages back from the file when it is read again.
    entry->source->release();
  }
  progress.end();
}

}  // namespace gristmill::device::cpu
