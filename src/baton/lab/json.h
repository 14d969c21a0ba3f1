#pragma once

#include "baton/job/json.h"
#include "baton/job/keys.h"

namespace baton::lab {

using job::Json;
using job::JsonSize;
using job::number;
using job::parse_json;
using job::Record;
using job::values_in;

namespace key = job::key;

}  // namespace baton::lab
