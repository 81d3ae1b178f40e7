#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/backend.h"
#include "model/model.h"
#include "sanitizers.h"
#include "weights/safetensors.h"

namespace gristmill::model {

/// Path of the published model that the larger golden data were made from. An empty GRISTMILL_DEFAULT_MODEL says that
/// there is none, e.g. for runs under emulation.
inline std::string default_model() {
  if (const char* path = std::getenv("GRISTMILL_DEFAULT_MODEL")) return path;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::filesystem::path folder = cache != nullptr && *cache != '\0' ? std::filesystem::path(cache)
                                       : home != nullptr                  ? std::filesystem::path(home) / ".cache"
                                                                          : std::filesystem::path();
  return (folder / "gristmill" / "SmolLM2-135M-Instruct.Q4_1.gguf").string();
}

/// Why a test cannot run the default model; empty when it can.
inline std::string no_default_model() {
#if defined(GRISTMILL_SANITIZED)
  return "135 million weights take minutes under sanitizers; the tiny model runs the same code";
#else
  const std::string path = default_model();
  if (path.empty()) return "GRISTMILL_DEFAULT_MODEL is empty";
  if (std::filesystem::exists(path)) return "";
  return path + " is absent (GRISTMILL_DEFAULT_MODEL names another place)";
#endif
}

/// A model with what transformers computes for it (tests/golden/make_llama_golden.py).
class Golden {
 public:
  explicit Golden(const std::string& name)
      : file_(weights::SafetensorsFile::open(std::string(GRISTMILL_TEST_DIR "/golden/") + name + ".safetensors")) {}

  bool has(const std::string& name) const { return file_->contains(name); }
  std::vector<float> floats(const std::string& name) const { return read<float>(name); }
  std::vector<int32_t> ids(const std::string& name) const { return read<int32_t>(name); }

 private:
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const TensorView tensor = file_->tensor(name);
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }

  std::shared_ptr<const weights::SafetensorsFile> file_;
};

/// One sequence at a time on a back end.
class Runner {
 public:
  Runner(device::Backend& backend, const Model& model, DType cache = DType::f32, int tokens = 128)
      : vocabulary_(static_cast<size_t>(model.config.vocabulary)),
        executable_(backend.compile(model.program, {tokens, 1, tokens, tokens}, {cache, 16})),
        blocks_(static_cast<size_t>((tokens + 15) / 16)) {
    std::iota(blocks_.begin(), blocks_.end(), 0);
    device::BindOptions options;
    options.num_blocks = static_cast<int>(blocks_.size());
    options.num_states = 1;
    executable_->bind(options);
  }

  const device::Executable& executable() const { return *executable_; }

  /// Forgets the sequence so far.
  void restart() { context_ = 0; }

  /// Appends tokens; the result's logits are of all of them, or of the last one.
  const device::StepResult& step(const std::vector<int32_t>& ids, bool all_logits) {
    const auto count = static_cast<int32_t>(ids.size());
    const device::SequenceStep sequence{0, count, context_, blocks_, 0};
    std::vector<int32_t> rows(all_logits ? ids.size() : 1, count - 1);
    if (all_logits) std::iota(rows.begin(), rows.end(), 0);
    const std::vector<uint8_t> want(rows.size(), all_logits ? 1 : 0);
    context_ += count;
    return executable_->wait(
        executable_->launch({count, 1, static_cast<int>(rows.size()), count == 1}, {ids, {&sequence, 1}, rows, want}));
  }

  /// The logits of every token of a new sequence, row after row, run in chunks.
  std::vector<float> logits(const std::vector<int32_t>& ids, size_t chunk = SIZE_MAX) {
    restart();
    std::vector<float> all;
    for (size_t first = 0; first < ids.size(); first += std::min(chunk, ids.size())) {
      const size_t end = first + std::min(chunk, ids.size() - first);
      const std::vector<int32_t> part(ids.begin() + static_cast<std::ptrdiff_t>(first),
                                      ids.begin() + static_cast<std::ptrdiff_t>(end));
      for (const float* row : step(part, true).logits) all.insert(all.end(), row, row + vocabulary_);
    }
    return all;
  }

  /// The likeliest continuation of a new sequence.
  std::vector<int32_t> greedy(const std::vector<int32_t>& prompt, size_t count) {
    restart();
    std::vector<int32_t> ids;
    std::vector<int32_t> next = prompt;
    while (ids.size() < count) {
      ids.push_back(step(next, false).argmax[0]);
      next = {ids.back()};
    }
    return ids;
  }

 private:
  size_t vocabulary_;
  std::unique_ptr<device::Executable> executable_;
  std::vector<int32_t> blocks_;
  int32_t context_ = 0;
};

inline float largest_difference(const float* a, const float* b, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

/// Largest error of the hidden states after each layer. `model` was built with taps.
///
/// The first token of SmolLM2 is an attention sink: one of its channels reaches 22,552, where neighbouring float32
/// numbers are 0.002 apart, and what is lost there stays in the residual stream (transformers in float32 is 0.0098 away
/// from itself in float64). So the errors of a token that has passed 2,000 count in proportion to the largest value so
/// far.
inline float hidden_state_error(device::Backend& backend, const Model& model, const Golden& golden) {
  Runner runner(backend, model);
  const std::vector<int32_t> ids = golden.ids("hidden.ids");
  const std::vector<float> expected = golden.floats("hidden.states");
  const device::StepResult& result = runner.step(ids, false);
  const auto width = static_cast<size_t>(model.config.hidden);
  EXPECT_EQ(expected.size(), ids.size() * width * result.taps.size());
  float worst = 0;
  for (size_t token = 0; token < ids.size(); ++token) {
    float largest = 2000;
    for (size_t slot = 0; slot < result.taps.size(); ++slot) {
      const float* const wanted = expected.data() + (slot * ids.size() + token) * width;
      for (size_t i = 0; i < width; ++i) largest = std::max(largest, std::fabs(wanted[i]));
      const float error = largest_difference(result.taps[slot].data() + token * width, wanted, width);
      worst = std::max(worst, error * 2000 / largest);
    }
  }
  return worst;
}

/// Largest error of the logits over all texts and positions.
inline float logit_error(Runner& runner, const Model& model, const Golden& golden) {
  const auto vocabulary = static_cast<size_t>(model.config.vocabulary);
  const std::vector<int32_t> columns = golden.ids("logits.columns");
  float largest = 0;
  for (int n = 0; golden.has(cat("logits.", n, ".ids")); ++n) {
    const std::vector<int32_t> ids = golden.ids(cat("logits.", n, ".ids"));
    const std::vector<float> got = runner.logits(ids);
    const std::vector<float> sampled = golden.floats(cat("logits.", n, ".sampled"));
    EXPECT_EQ(sampled.size(), ids.size() * columns.size());
    for (size_t t = 0; t < ids.size(); ++t)
      for (size_t c = 0; c < columns.size(); ++c)
        largest = std::max(largest, std::fabs(got[t * vocabulary + static_cast<size_t>(columns[c])] -
                                              sampled[t * columns.size() + c]));
    if (!golden.has(cat("logits.", n, ".last"))) continue;
    const std::vector<float> last = golden.floats(cat("logits.", n, ".last"));
    EXPECT_EQ(last.size(), vocabulary);
    largest =
        std::max(largest, largest_difference(last.data(), got.data() + (ids.size() - 1) * vocabulary, vocabulary));
  }
  return largest;
}

/// Compares the continuations of the first `chats` prompts; returns how many there were.
inline int expect_same_greedy_text(Runner& runner, const Golden& golden, int chats) {
  int n = 0;
  for (; n < chats && golden.has(cat("greedy.", n, ".ids")); ++n) {
    const std::vector<int32_t> expected = golden.ids(cat("greedy.", n, ".ids"));
    EXPECT_GT(golden.floats(cat("greedy.", n, ".margin"))[0], 0.02f);  // no closer call than that decides
    EXPECT_EQ(runner.greedy(golden.ids(cat("greedy.", n, ".prompt")), expected.size()), expected) << "chat " << n;
  }
  return n;
}

}  // namespace gristmill::model
