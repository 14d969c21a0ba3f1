#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "baton/lab/job.h"

namespace baton::app {

/// Adds a flag for each word of a job to a command.
void add_job_flags(CLI::App& command, lab::JobWords& words);

}  // namespace baton::app
