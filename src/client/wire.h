#pragma once
// The messages between the front process and an engine process: frames of a 32-bit length, a 16-bit type and a payload,
// little-endian. Both ends are the same executable; the version in the hello catches a mix-up.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_config.h"
#include "engine/messages.h"

namespace gristmill::wire {

inline constexpr uint32_t version = 3;
inline constexpr uint32_t max_frame = 1u << 30;

enum class Type : uint16_t {
  hello,         ///< front -> engine: version, EngineConfig
  ready,         ///< engine -> front: EngineInfo
  failed,        ///< engine -> front: why it cannot start
  submit,        ///< front -> engine: EngineRequest
  abort,         ///< front -> engine: RequestId, choice or every_choice
  outputs,       ///< engine -> front: vector<EngineOutput>
  stats,         ///< engine -> front, every quarter second: EngineStats, seconds in the running step
  reset,         ///< front -> engine: drop the prefix cache
  reset_answer,  ///< engine -> front: bool
  stop,          ///< front -> engine: end
  load,          ///< front -> engine: weights may be loaded
};

using Bytes = std::vector<uint8_t>;

/// Frames ready to be written to the socket.
Bytes hello_frame(const engine::EngineConfig& config);
Bytes ready_frame(const engine::EngineInfo& info);
Bytes failed_frame(const std::string& why);
Bytes submit_frame(const engine::EngineRequest& request);
Bytes abort_frame(engine::RequestId id, int32_t choice);
Bytes outputs_frame(const std::vector<engine::EngineOutput>& outputs);
Bytes stats_frame(const engine::EngineStats& stats, double seconds_in_step);
Bytes reset_answer_frame(bool done);
Bytes empty_frame(Type type);

struct Frame {
  Type type{};
  std::span<const uint8_t> payload;
};

/// Decoders throw Error on a payload that is cut short or inconsistent.
engine::EngineConfig read_hello(std::span<const uint8_t> payload);
engine::EngineInfo read_ready(std::span<const uint8_t> payload);
std::string read_failed(std::span<const uint8_t> payload);
engine::EngineRequest read_submit(std::span<const uint8_t> payload);
std::pair<engine::RequestId, int32_t> read_abort(std::span<const uint8_t> payload);
std::vector<engine::EngineOutput> read_outputs(std::span<const uint8_t> payload);
struct StatsMessage {
  engine::EngineStats stats;
  double seconds_in_step = 0;
};
StatsMessage read_stats(std::span<const uint8_t> payload);
bool read_reset_answer(std::span<const uint8_t> payload);

/// Collects bytes from a stream socket into frames.
class FrameReader {
 public:
  /// Reads what is there. False at the end of the stream (the peer is gone).
  bool fill(int socket);
  /// The next whole frame, valid until the next call of fill() or next(). Throws Error on a length beyond max_frame.
  std::optional<Frame> next();

 private:
  Bytes buffer_;
  size_t begin_ = 0;
};

/// Writes all of it; false when the peer is gone. Blocks while the socket is full.
bool write_frame(int socket, std::span<const uint8_t> frame);

}  // namespace gristmill::wire
