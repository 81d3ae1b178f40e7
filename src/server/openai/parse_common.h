#pragma once
#include "server/json_request.h"
#include "server/openai/request.h"

namespace gristmill::server::openai {

/// Reads every field that both kinds of request know, except max_tokens and logprobs, whose rules differ.
void parse_common(FieldReader& fields, CommonFields& out);
/// What is left over: fields nobody knows are accepted and listed.
void note_unknown(const FieldReader& fields, CommonFields& out);

}  // namespace gristmill::server::openai
