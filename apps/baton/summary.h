#pragma once

#include <string>

#include "baton/lab/training.h"

namespace baton::app {

/// Where each device's step went, its memory and its bytes: a table for the terminal.
std::string device_table(const lab::Training& run);

}  // namespace baton::app
