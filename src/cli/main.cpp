#include <CLI/CLI.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  CLI::App app("Gristmill serves language models over the OpenAI HTTP API.", "gristmill");
  app.set_version_flag("--version", "gristmill 0.1.0");
  CLI11_PARSE(app, argc, argv);
  std::fputs(app.help().c_str(), stdout);
  return 0;
}
