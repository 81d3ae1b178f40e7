#include <sys/prctl.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/chat.h"
#include "cli/default_model.h"
#include "cli/eval.h"
#include "cli/quantize.h"
#include "cli/serve.h"
#include "client/engine_process.h"
#include "config/environment.h"
#include "server/version.h"

namespace {

constexpr const char* usage =
    "usage: gristmill COMMAND [arguments]\n"
    "\n"
    "  serve [MODEL]   serve a model over the OpenAI HTTP API (gristmill serve --help)\n"
    "  chat            talk to a running server, or to a model file (gristmill chat --help)\n"
    "  eval            measure a model: perplexity of a text (gristmill eval perplexity --help)\n"
    "  quantize        write a quantized copy of a model folder (gristmill quantize --help)\n"
    "  fetch           get the default model if need be and print its path\n"
    "\n"
    "  --version       print the version\n"
    "  --help          print this\n";

/// `gristmill engine --fd N`: what `serve` starts for itself.
int engine(const std::vector<std::string>& words) {
  if (words.size() != 2 || words[0] != "--fd" || words[1].empty() ||
      words[1].find_first_not_of("0123456789") != std::string::npos || words[1].size() > 6) {
    std::fputs("gristmill engine is started by gristmill serve, not by hand\n", stderr);
    return 2;
  }

  if (const auto level = gristmill::config::environment_log_level(gristmill::config::process_environment())) {
    gristmill::set_log_level(*level);
  }
  ::prctl(PR_SET_NAME, "gristmill-engine");  // up to 15 characters stay
  return gristmill::run_engine_process(std::atoi(words[1].c_str()));
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) {
    std::fputs(usage, stderr);
    return 2;
  }
  const std::string& command = words[0];
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (command == "serve") return gristmill::cli::serve(rest);
  if (command == "chat") return gristmill::cli::chat(rest);
  if (command == "eval") return gristmill::cli::eval(rest);
  if (command == "quantize") return gristmill::cli::quantize(rest);
  if (command == "engine") return engine(rest);
  if (command == "fetch" && !rest.empty()) {
    std::fputs("usage: gristmill fetch\n\nGets the default model if need be and prints its path.\n", stderr);
    return rest[0] == "--help" || rest[0] == "-h" ? 0 : 2;
  }
  if (command == "fetch") {
    std::puts(gristmill::cli::obtain_default_model().c_str());
    return 0;
  }
  if (command == "--version" || command == "version") {
    std::puts(gristmill::cat("gristmill ", gristmill::server::program_version).c_str());
    return 0;
  }
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(usage, stdout);
    return 0;
  }
  std::fputs(gristmill::cat("gristmill: error: no such command: ", command, "\n", usage).c_str(), stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fputs(gristmill::cat("gristmill: error: ", error.what(), "\n").c_str(), stderr);
    return 1;
  }
}
