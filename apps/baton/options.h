#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "baton/lab/job.h"

namespace baton::app {

/// Adds a flag for each word of a job to a command, or only for those that are named.
void add_job_flags(CLI::App& command, lab::JobWords& words, const std::vector<std::string>& only = {});

/// Keeps flags of a job out of help, completion and manual: the command refuses them, in a sentence to whoever tries.
void hide_job_flags(CLI::App& command, const std::vector<std::string>& names);

}  // namespace baton::app
