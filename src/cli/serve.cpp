#include "cli/serve.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/log.h"
#include "cli/arguments.h"
#include "cli/command_line.h"
#include "cli/default_model.h"
#include "cli/serve_flags.h"
#include "cli/startup_lines.h"
#include "client/engine_client.h"
#include "config/environment.h"
#include "server/generation.h"
#include "server/load_model.h"
#include "server/service.h"
#include "server/version.h"

extern char** environ;

namespace gristmill::cli {
namespace {

void set_up_log(const ServeFlags& flags, const config::Lookup& environment) {
  std::optional<LogLevel> level = config::environment_log_level(environment);
  if (!flags.log_level().empty()) {
    level = config::log_level_named("--log-level", flags.log_level());
    // The engine process reads it there.
    ::setenv("VLLM_LOGGING_LEVEL", flags.log_level().c_str(), 1);
  }
  if (level) set_log_level(*level);
  set_log_prefix(cat("(APIServer pid=", ::getpid(), ") "));
}

int run(const config::ServeConfig& config, server::Listener listener) {
  const double start = server::monotonic_seconds();
  // The engine process starts and checks the model while this one reads tokenizer and template; it takes memory when
  // these are in order too.
  const std::unique_ptr<EngineClient> client = make_process_client(config.engine, "/proc/self/exe", /*waits=*/true);
  server::Service service(config, std::move(listener), *client);
  std::string failure;
  std::thread loader([&] {
    try {
      const std::shared_ptr<server::ServedModel> model = server::load_served_model(config);
      client->permit_loading();
      const engine::EngineInfo info = client->wait_ready(-1);
      model->max_model_len = info.max_model_len;
      model->vocabulary = info.vocabulary;
      log_address(config, *model, info, service.listener(), server::monotonic_seconds() - start);
      service.model_ready(model, info, [] { LOG_INFO("Application startup complete."); });
    } catch (const std::exception& error) {
      failure = error.what();
      service.stop(1);
    }
  });
  const int status = service.run();
  loader.join();
  if (!failure.empty()) std::fputs(cat("gristmill: error: ", failure, "\n").c_str(), stderr);
  return status;
}

}  // namespace

int serve(const std::vector<std::string>& words) {
  CLI::App command("Serve a model over the OpenAI HTTP API, with vLLM's flags.", "gristmill serve");
  ServeFlags flags(command);
  std::vector<std::string> notes;
  try {
    Arguments arguments = normalize(words, flags.specs());
    notes = std::move(arguments.notes);
    if (const std::optional<int> status = parse_words(command, arguments.words)) return *status;
  } catch (const Error& error) {
    return usage_error("gristmill serve", error.what());
  }
  try {
    config::ServeConfig config = flags.config();
    const config::Lookup environment = config::process_environment();
    set_up_log(flags, environment);
    LOG_INFO("Gristmill ", server::program_version, ", answering as vLLM API server version ", server::api_version);
    LOG_INFO("non-default args: ", flags.given());
    config::apply_environment(config, environment);
    config::validate(config);
    notes.insert(notes.end(), flags.notes().begin(), flags.notes().end());
    for (const std::string& note : notes) LOG_INFO(note);
    for (const std::string& name : config::unread_variables(environ)) {
      LOG_WARNING("Unknown vLLM environment variable detected: ", name, " (no effect)");
    }
    // Before the model: a taken port shall fail at once.
    server::Listener listener({config.http.host, config.http.port, config.http.uds});
    if (config.engine.model.empty()) {
      config.engine.model = obtain_default_model();
      if (config.model.served_names.empty()) config.model.served_names = {default_model().name};
      config.model.recommended_sampling = default_model().sampling;
    }
    check_model_path(config.engine.model);
    return run(config, std::move(listener));
  } catch (const std::exception& error) {
    std::fputs(cat("gristmill: error: ", error.what(), "\n").c_str(), stderr);
    return 1;
  }
}

}  // namespace gristmill::cli
