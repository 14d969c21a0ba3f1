#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "baton/lab/job.h"

namespace baton::app {

/// Adds a flag for each word of a job to a command, or only for those that are named.
void add_job_flags(CLI::App& command, lab::JobWords& words, const std::vector<std::string>& only = {});

}  // namespace baton::app
