#pragma once

#include <vector>

#include "baton/sheet/sheets.h"

namespace baton::sheet {

/// The thirteen questions of csye-hw4's first part with their answers, each with the command that shows it where there is one.
std::vector<AskedOn> theory_questions();

}  // namespace baton::sheet
