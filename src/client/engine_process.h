#pragma once

namespace gristmill {

/// The engine process: speaks the protocol of client/wire.h on the socket `fd` until told to stop or the front is gone.
/// Returns the exit status.
int run_engine_process(int fd);

}  // namespace gristmill
