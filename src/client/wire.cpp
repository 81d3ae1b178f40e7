#include "client/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace gristmill::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written as the machine stores numbers");

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Writes fields into a frame. fields() below walks a struct once for both directions.
class Writer {
 public:
  explicit Writer(Type type) {
    bytes_.resize(4);
    (*this)(type);
  }
  template <Plain T>
  void operator()(const T& value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  template <class T>
  void operator()(const std::vector<T>& list);
  template <Plain T, size_t n>
  void operator()(const std::array<T, n>& values) {
    for (const T& value : values) (*this)(value);
  }
  template <class T>
  void operator()(const std::optional<T>& value) {
    (*this)(value.has_value());
    if (value) (*this)(*value);
  }
  template <class A, class B>
  void operator()(const std::pair<A, B>& pair) {
    (*this)(pair.first);
    (*this)(pair.second);
  }
  template <class T>
    requires std::is_class_v<T>
  void operator()(const T& value);

  Bytes frame() && {
    if (bytes_.size() - 4 > max_frame) throw Error("a message between the front and the engine is too large");
    const uint32_t size = static_cast<uint32_t>(bytes_.size() - 4);
    std::memcpy(bytes_.data(), &size, sizeof size);
    return std::move(bytes_);
  }

 private:
  Bytes bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <Plain T>
  void operator()(T& value) {
    take(&value, sizeof value);
  }
  void operator()(std::string& text) {
    text.resize(size(1));
    take(text.data(), text.size());
  }
  template <class T>
  void operator()(std::vector<T>& list);
  template <Plain T, size_t n>
  void operator()(std::array<T, n>& values) {
    for (T& value : values) (*this)(value);
  }
  template <class T>
  void operator()(std::optional<T>& value) {
    bool there = false;
    (*this)(there);
    value.reset();
    if (there) (*this)(value.emplace());
  }
  template <class A, class B>
  void operator()(std::pair<A, B>& pair) {
    (*this)(pair.first);
    (*this)(pair.second);
  }
  template <class T>
    requires std::is_class_v<T>
  void operator()(T& value);
  void end() const {
    if (!bytes_.empty()) throw Error("a message between the front and the engine is longer than it should be");
  }

 private:
  // A count of elements that take at least `least` bytes each in what is left.
  size_t size(size_t least) {
    uint32_t count = 0;
    (*this)(count);
    if (count > bytes_.size() / least) throw Error("a message between the front and the engine is cut short");
    return count;
  }
  void take(void* to, size_t count) {
    if (count > bytes_.size()) throw Error("a message between the front and the engine is cut short");
    if (count > 0) std::memcpy(to, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }
  std::span<const uint8_t> bytes_;
};

template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, CpuDomain>
void fields(C& c, T& v) {
  c(v.numa_node), c(v.cores), c(v.cpus);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, Topology>
void fields(C& c, T& v) {
  c(v.domains), c(v.bind);
}
// One list of fields per message; C is Writer with const structs or Reader with mutable ones.
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, engine::EngineConfig>
void fields(C& c, T& v) {
  c(v.model), c(v.device), c(v.float32), c(v.threads), c(v.max_model_len), c(v.max_num_seqs),
      c(v.max_num_batched_tokens);
  c(v.long_prefill_token_threshold), c(v.mixed_prefill_tokens), c(v.block_size), c(v.cache_dtype), c(v.cache_bytes);
  c(v.num_blocks_override), c(v.memory_utilization), c(v.prefix_caching), c(v.chunked_prefill), c(v.async_scheduling);
  c(v.policy), c(v.logprobs_mode), c(v.seed), c(v.watchdog_seconds), c(v.max_num_partial_prefills);
  c(v.max_long_partial_prefills), c(v.trace_path), c(v.prefix_hash), c(v.quantization), c(v.float_linears);
  c(v.load_format), c(v.hf_overrides), c(v.weight_cache_dir), c(v.weight_cache_bytes), c(v.weight_residence),
      c(v.topology);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, engine::EngineInfo>
void fields(C& c, T& v) {
  c(v.max_model_len), c(v.vocabulary), c(v.max_num_seqs), c(v.block_size), c(v.num_blocks), c(v.weight_bytes);
  c(v.cache_bytes), c(v.scratch_bytes), c(v.load_seconds), c(v.device), c(v.cache_dtype);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, SamplingParams>
void fields(C& c, T& v) {
  c(v.temperature), c(v.top_p), c(v.top_k), c(v.min_p), c(v.repetition_penalty), c(v.presence_penalty);
  c(v.frequency_penalty), c(v.seed), c(v.max_tokens), c(v.min_tokens), c(v.ignore_eos), c(v.stop_token_ids);
  c(v.logit_bias), c(v.allowed_token_ids), c(v.bad_words), c(v.logprobs), c(v.prompt_logprobs);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, engine::EngineRequest>
void fields(C& c, T& v) {
  c(v.id), c(v.prompt), c(v.sampling), c(v.n), c(v.priority), c(v.eos_ids), c(v.known_tokens), c(v.cache_salt);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, TokenLogprob>
void fields(C& c, T& v) {
  c(v.token), c(v.logprob), c(v.rank);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, engine::OutputToken>
void fields(C& c, T& v) {
  c(v.token), c(v.sampled), c(v.top);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, engine::EngineOutput>
void fields(C& c, T& v) {
  c(v.id), c(v.index), c(v.tokens), c(v.finish), c(v.stop_token), c(v.prompt_tokens), c(v.cached_tokens);
  c(v.prompt_logprobs), c(v.error), c(v.bad_request), c(v.queued), c(v.scheduled), c(v.made);
}
template <class C, class T>
  requires std::is_same_v<std::remove_const_t<T>, engine::EngineStats>
void fields(C& c, T& v) {
  c(v.running), c(v.waiting), c(v.total_blocks), c(v.free_blocks), c(v.prompt_tokens), c(v.cached_prompt_tokens);
  c(v.generated_tokens), c(v.preemptions), c(v.prefix_queries), c(v.prefix_hits), c(v.prefix_block_hits),
      c(v.state_snapshots), c(v.steps), c(v.forward_seconds);
  c(v.step_seconds), c(v.step_tokens), c(v.steps_by_tokens);
}

template <class T>
void Writer::operator()(const std::vector<T>& list) {
  (*this)(static_cast<uint32_t>(list.size()));
  if constexpr (Plain<T>) {
    const auto* raw = reinterpret_cast<const uint8_t*>(list.data());
    bytes_.insert(bytes_.end(), raw, raw + list.size() * sizeof(T));
  } else {
    for (const T& item : list) (*this)(item);
  }
}
template <class T>
  requires std::is_class_v<T>
void Writer::operator()(const T& value) {
  fields(*this, value);
}
template <class T>
void Reader::operator()(std::vector<T>& list) {
  if constexpr (Plain<T>) {
    list.resize(size(sizeof(T)));
    take(list.data(), list.size() * sizeof(T));
  } else {
    list.clear();
    for (size_t left = size(1); left > 0; --left) (*this)(list.emplace_back());
  }
}
template <class T>
  requires std::is_class_v<T>
void Reader::operator()(T& value) {
  fields(*this, value);
}

template <class... Values>
Bytes make_frame(Type type, const Values&... values) {
  Writer writer(type);
  (writer(values), ...);
  return std::move(writer).frame();
}

template <class T>
T read_one(std::span<const uint8_t> payload) {
  Reader reader(payload);
  T value{};
  reader(value);
  reader.end();
  return value;
}

}  // namespace

Bytes hello_frame(const engine::EngineConfig& config) {
  return make_frame(Type::hello, version, config);
}
Bytes ready_frame(const engine::EngineInfo& info) {
  return make_frame(Type::ready, info);
}
Bytes failed_frame(const std::string& why) {
  return make_frame(Type::failed, why);
}
Bytes submit_frame(const engine::EngineRequest& request) {
  return make_frame(Type::submit, request);
}
Bytes abort_frame(engine::RequestId id, int32_t choice) {
  return make_frame(Type::abort, id, choice);
}
Bytes outputs_frame(const std::vector<engine::EngineOutput>& outputs) {
  return make_frame(Type::outputs, outputs);
}
Bytes stats_frame(const engine::EngineStats& stats, double seconds) {
  return make_frame(Type::stats, stats, seconds);
}
Bytes reset_answer_frame(bool done) {
  return make_frame(Type::reset_answer, done);
}
Bytes empty_frame(Type type) {
  return make_frame(type);
}

engine::EngineConfig read_hello(std::span<const uint8_t> payload) {
  Reader reader(payload);
  uint32_t theirs = 0;
  reader(theirs);
  if (theirs != version)
    throw Error(cat("the front speaks version ", theirs, " of the engine protocol, this is ", version));
  engine::EngineConfig config;
  reader(config);
  reader.end();
  return config;
}
engine::EngineInfo read_ready(std::span<const uint8_t> payload) {
  return read_one<engine::EngineInfo>(payload);
}
std::string read_failed(std::span<const uint8_t> payload) {
  return read_one<std::string>(payload);
}
engine::EngineRequest read_submit(std::span<const uint8_t> payload) {
  return read_one<engine::EngineRequest>(payload);
}
std::pair<engine::RequestId, int32_t> read_abort(std::span<const uint8_t> payload) {
  return read_one<std::pair<engine::RequestId, int32_t>>(payload);
}
std::vector<engine::EngineOutput> read_outputs(std::span<const uint8_t> payload) {
  return read_one<std::vector<engine::EngineOutput>>(payload);
}
StatsMessage read_stats(std::span<const uint8_t> payload) {
  Reader reader(payload);
  StatsMessage message;
  reader(message.stats);
  reader(message.seconds_in_step);
  reader.end();
  return message;
}
bool read_reset_answer(std::span<const uint8_t> payload) {
  return read_one<bool>(payload);
}

bool FrameReader::fill(int socket) {
  if (begin_ > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  constexpr size_t chunk = 64 * 1024;
  const size_t had = buffer_.size();
  buffer_.resize(had + chunk);
  ssize_t got = 0;
  do {
    got = ::recv(socket, buffer_.data() + had, chunk, 0);
  } while (got < 0 && errno == EINTR);
  buffer_.resize(had + static_cast<size_t>(got > 0 ? got : 0));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

std::optional<Frame> FrameReader::next() {
  if (buffer_.size() - begin_ < 4) return std::nullopt;
  uint32_t size = 0;
  std::memcpy(&size, buffer_.data() + begin_, sizeof size);
  if (size > max_frame || size < sizeof(Type)) throw Error("the stream between the front and the engine is garbled");
  if (buffer_.size() - begin_ - 4 < size) return std::nullopt;
  Frame frame;
  std::memcpy(&frame.type, buffer_.data() + begin_ + 4, sizeof frame.type);
  frame.payload = std::span(buffer_).subspan(begin_ + 4 + sizeof(Type), size - sizeof(Type));
  begin_ += 4 + size;
  return frame;
}

bool write_frame(int socket, std::span<const uint8_t> frame) {
  while (!frame.empty()) {
    const ssize_t wrote = ::send(socket, frame.data(), frame.size(), MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    frame = frame.subspan(static_cast<size_t>(wrote));
  }
  return true;
}

}  // namespace gristmill::wire
