#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/chat_backend.h"

namespace gristmill::cli {

/// What `gristmill chat` was told.
struct ChatOptions {
  std::string url;           ///< a running server; empty with an empty `model`: the default one, if it answers
  std::string model;         ///< a GGUF file to load into this process
  std::string served_model;  ///< which of the server's models; empty: its first
  std::string api_key;
  std::string system;   ///< the system message; empty: none
  int32_t threads = 0;  ///< with a file; 0: usable cores
  ChatSampling sampling;
};

/// Runs a conversation on standard input and output until the end of input; returns the exit status.
///
/// On a terminal: a prompt, the reply as it is made, commands (/help, /reset, /quit). Ctrl-C stops a running reply; at
/// the prompt Ctrl-C and Ctrl-D leave. Otherwise, for scripts: each line of input is a message, each reply is printed
/// with a line end behind it, and the first failure ends it with status 1. Throws Error when nothing can answer.
int run_chat(const ChatOptions& options);

/// The conversation itself, on given descriptors.
int run_chat_session(ChatBackend& backend, Interrupts& interrupts, const std::string& system, int input, int output,
                     bool terminal);

/// `gristmill chat`: `words` are the arguments behind the command's name. Returns the exit status; 2 for a wrong
/// command line.
int chat(const std::vector<std::string>& words);

}  // namespace gristmill::cli
