#pragma once
#include <boost/json/object.hpp>
#include <string>

#include "server/served_model.h"

namespace gristmill::server::openai {

/// The bodies of /tokenize and /detokenize. Throw ApiError.
std::string tokenize(const boost::json::object& body, const ServedModel& model, const ApiPolicy& policy);
std::string detokenize(const boost::json::object& body, const ServedModel& model);

}  // namespace gristmill::server::openai
