#pragma once
#include <cstdint>
#include <string_view>

namespace gristmill {

/// Told of the progress of something long. Thread safe; calls are cheap enough for a call per panel.
class Progress {
 public:
  virtual ~Progress() = default;
  /// Starts a stage of `total` units (bytes unless said).
  virtual void begin(std::string_view stage, uint64_t total) = 0;
  virtual void advance(uint64_t units) = 0;
  virtual void end() = 0;
};

/// Tells nobody.
class SilentProgress final : public Progress {
 public:
  void begin(std::string_view, uint64_t) override {}
  void advance(uint64_t) override {}
  void end() override {}
};

}  // namespace gristmill
