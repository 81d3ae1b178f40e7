#pragma once
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <string>

namespace gristmill::server {

/// A body kept in a string, as Beast's string_body, but a Content-Length alone reserves little: memory follows the
/// bytes that arrive.
struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool request, class Fields>
    reader(boost::beast::http::header<request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& length, boost::system::error_code& failure) {
      if (length) body_.reserve(static_cast<size_t>(std::min<std::uint64_t>(*length, 256 << 10)));
      failure = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& failure) {
      size_t total = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers);
           ++it) {
        const boost::asio::const_buffer buffer(*it);
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
        total += buffer.size();
      }
      failure = {};
      return total;
    }
    void finish(boost::system::error_code& failure) { failure = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace gristmill::server
