#include "server/served_model.h"

#include <algorithm>

namespace gristmill::server {

int32_t ServedModel::known_tokens() const {
  return std::min(tokenizer->vocabulary(), vocabulary);
}

bool ServedModel::answers_to(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace gristmill::server
