// The tests of the process client start this very program again as the engine process.
#include <gtest/gtest.h>

#include <cstring>

#include "base/log.h"
#include "client/engine_process.h"

int main(int argc, char** argv) {
  gristmill::set_log_level(gristmill::LogLevel::error);
  if (argc > 1 && std::strcmp(argv[1], "engine") == 0) return gristmill::run_engine_process(3);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
