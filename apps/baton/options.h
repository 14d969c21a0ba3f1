#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "baton/exec/fingerprint.h"
#include "baton/training/job.h"

namespace baton::app {

/// Adds a flag for each field of a job to a command, or only for those that are named.
void add_job_flags(CLI::App& command, job::JobSpec& spec, const std::vector<std::string>& only = {});

/// What all ranks must have been given alike: every field of a job but those that say what a rank itself has.
void add_settings(const job::JobSpec& spec, std::vector<exec::Setting>& settings);

/// The flags that say what data a job reads: commands that only time or simulate its step refuse them.
const std::vector<std::string>& data_flags();

/// Keeps flags of a job out of help, completion and manual: the command refuses them, in a sentence to whoever tries.
void hide_job_flags(CLI::App& command, const std::vector<std::string>& names);

}  // namespace baton::app
