#pragma once

#include <string>

#include "train_log.h"

namespace baton::app {

/// The page of a training: its curves, the record of a step as the laboratory keeps it and its timeline, in one file that needs
/// nothing else.
std::string training_page(const TrainLog& log, const std::string& command);

}  // namespace baton::app
