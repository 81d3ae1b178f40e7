#include "cli/chat.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/default_model.h"
#include "config/environment.h"

namespace gristmill::cli {
namespace {

namespace json = boost::json;

constexpr const char* default_url = "http://127.0.0.1:8000";
constexpr std::string_view commands_help =
    "/reset  forget the conversation\n"
    "/quit   leave (also Ctrl-D)\n"
    "/help   print this\n"
    "Ctrl-C stops a running reply.\n";

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw Error(cat("cannot write the reply: ", std::strerror(errno)));
    text.remove_prefix(static_cast<size_t>(put));
  }
}

/// Removes control characters, which could drive a terminal: C0 but for line end and tab, DEL, and C1.
std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) continue;
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0) {
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

/// Lines of a descriptor, read without blocking signals out.
class LineReader {
 public:
  LineReader(int file, Interrupts& interrupts) : file_(file), interrupts_(interrupts) {}
  enum class Outcome { line, end, interrupt };
  Outcome next(std::string& line) {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return Outcome::line;
      }
      if (ended_) {
        line = std::exchange(buffer_, {});
        return line.empty() ? Outcome::end : Outcome::line;
      }
      if (interrupts_.wait(file_) == Interrupts::Event::interrupt) {
        interrupts_.take();
        return Outcome::interrupt;
      }
      char bytes[4096];
      const ssize_t got = read(file_, bytes, sizeof(bytes));
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) throw Error(cat("cannot read input: ", std::strerror(errno)));
      if (got == 0) ended_ = true;
      buffer_.append(bytes, static_cast<size_t>(got));
    }
  }

 private:
  int file_;
  Interrupts& interrupts_;
  std::string buffer_;
  bool ended_ = false;
};

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

json::array new_conversation(const std::string& system) {
  json::array messages;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  return messages;
}

std::unique_ptr<ChatBackend> find_backend(const ChatOptions& options) {
  if (!options.model.empty()) check_model_path(options.model);
  if (!options.model.empty()) return make_engine_chat(options.model, options.threads, options.sampling);
  const std::string url = options.url.empty() ? default_url : options.url;
  try {
    return make_http_chat(url, options.served_model, options.api_key, options.sampling);
  } catch (const Error&) {
    if (!options.url.empty()) throw;
  }
  std::fprintf(stderr, "No server at %s; loading the default model instead.\n", default_url);
  ChatSampling sampling = options.sampling;
  const json::object recommended = json::parse(default_model().sampling).as_object();
  if (!sampling.temperature) sampling.temperature = recommended.at("temperature").to_number<double>();
  if (!sampling.top_p) sampling.top_p = recommended.at("top_p").to_number<double>();
  return make_engine_chat(obtain_default_model(), options.threads, sampling);
}

void add_options(CLI::App& command, ChatOptions& options) {
  auto* model =
      command.add_option("--model", options.model, "GGUF file or model folder to load and talk to")->type_name("PATH");
  command
      .add_option("--url", options.url,
                  cat("Running server to talk to (without --model: ", default_url,
                      " if a server answers there, else the default model)"))
      ->excludes(model);
  command.add_option("--served-model", options.served_model, "Which of the server's models (its first)")
      ->excludes(model);
  command.add_option("--api-key", options.api_key, "Key that the server asks for")->envname("VLLM_API_KEY");
  command.add_option("--system", options.system, "System message");
  command.add_option("--threads", options.threads, "Threads, with --model (all usable cores)")
      ->check(CLI::Range(0, 4096));
  ChatSampling& sampling = options.sampling;
  command.add_option("--temperature", sampling.temperature, "0: always the likeliest token");
  command.add_option("--top-p", sampling.top_p, "Choose among the likeliest tokens of this joint probability");
  command.add_option("--top-k", sampling.top_k, "Choose among this many of the likeliest tokens");
  command.add_option("--min-p", sampling.min_p, "Leave out tokens below this part of the likeliest one's probability");
  command.add_option("--repetition-penalty", sampling.repetition_penalty, "Above 1: avoid tokens seen before");
  command.add_option("--presence-penalty", sampling.presence_penalty, "Above 0: avoid tokens of the reply");
  command.add_option("--frequency-penalty", sampling.frequency_penalty, "The same, for each time they came");
  command.add_option("--seed", sampling.seed, "Makes replies repeatable");
  command.add_option("--max-tokens", sampling.max_tokens, "Longest reply in tokens (1024)")
      ->check(CLI::Range(1, INT32_MAX));
}

}  // namespace

int run_chat_session(ChatBackend& backend, Interrupts& interrupts, const std::string& system, int input, int output,
                     bool terminal) {
  LineReader lines(input, interrupts);
  json::array messages = new_conversation(system);
  std::string line;
  while (true) {
    if (terminal) write_all(output, "> ");
    const LineReader::Outcome outcome = lines.next(line);
    if (outcome != LineReader::Outcome::line) {
      if (terminal) write_all(output, "\n");
      return outcome == LineReader::Outcome::interrupt && !terminal ? 130 : 0;
    }
    if (blank(line)) continue;
    if (line == "/quit" || line == "/exit") return 0;
    if (line == "/reset") {
      messages = new_conversation(system);
      continue;
    }
    if (line == "/help" || (terminal && line[0] == '/' && line.find(' ') == std::string::npos)) {
      if (line != "/help") write_all(output, cat("No command ", printable(line), ". There are:\n"));
      write_all(output, commands_help);
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    std::string text;
    try {
      interrupts.take();
      const ChatBackend::Reply reply = backend.reply(
          messages,
          [&](std::string_view piece) {
            text += piece;
            write_all(output, terminal ? printable(piece) : std::string(piece));
          },
          interrupts);
      interrupts.take();
      const bool cut = reply.finish_reason == "length";
      write_all(output,
                terminal && (cut || reply.interrupted) ? (cut ? " [cut at --max-tokens]\n" : " [stopped]\n") : "\n");
      if (cut && !terminal) std::fputs("The reply was cut at --max-tokens.\n", stderr);
      messages.push_back({{"role", "assistant"}, {"content", text}});
      if (reply.interrupted && !terminal) return 130;
    } catch (const Error& error) {
      messages.pop_back();
      if (!terminal) throw;
      write_all(output, cat(text.empty() ? "" : "\n", "error: ", printable(error.what()), "\n"));
    }
  }
}

int run_chat(const ChatOptions& options) {
  // The engine's start-up lines would stand between the messages.
  set_log_level(config::environment_log_level(config::process_environment()).value_or(LogLevel::warning));
  // A terminal only when both sides are one: with either redirected, a script reads or writes.
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  signal(SIGPIPE, SIG_IGN);
  const std::unique_ptr<ChatBackend> backend = find_backend(options);  // Ctrl-C ends the program until here
  Interrupts interrupts;
  if (terminal)
    write_all(STDOUT_FILENO, cat("Chatting with ", printable(backend->name()), ". /help lists the commands.\n"));
  return run_chat_session(*backend, interrupts, options.system, STDIN_FILENO, STDOUT_FILENO, terminal);
}

int chat(const std::vector<std::string>& words) {
  CLI::App command("Talk to a running server, or to a model file, in the terminal.", "gristmill chat");
  ChatOptions options;
  add_options(command, options);
  if (const std::optional<int> status = parse_words(command, words)) return *status;
  return run_chat(options);
}

}  // namespace gristmill::cli
