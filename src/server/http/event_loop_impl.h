#pragma once
// For the few files that speak Asio themselves.
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <memory>

#include "server/http/event_loop.h"

namespace gristmill::server {

struct EventLoop::Impl {
  boost::asio::io_context context{1};
  std::unique_ptr<boost::asio::signal_set> signals;
};

}  // namespace gristmill::server
