#pragma once

#include "baton/job/json.h"

namespace baton::lab {

using job::Json;
using job::JsonSize;
using job::parse_json;
using job::values_in;

}  // namespace baton::lab
