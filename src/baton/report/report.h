#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "baton/lab/runner.h"
#include "baton/lab/store.h"

/// Printers over stored results. They know nothing of measuring.
namespace baton::report {

/// A cell as people read it, "5.12 ms", "85.0 %", "1.70×"; the page writes it alike (web/src/format.js).
std::string cell(const lab::Json& row, const lab::Column& column);

/// One experiment: questions with their answers, table, details, command.
std::string to_terminal(const lab::Result& result);
std::string to_markdown(const lab::Result& result);
/// The table with raw values, a line a row.
std::string to_csv(const lab::Result& result);

/// One experiment, as `lab run --json` prints it and the page of a run has it.
lab::Json to_json(const lab::Result& result);
/// A whole run: what the page is made from, and what machines read. Title, command, time and environment are those that `kept` has;
/// the environment is oversubscribed where a row is.
lab::Json to_report(const std::vector<lab::Result>& results, const lab::RunSpec& kept);
std::string to_markdown(const std::vector<lab::Result>& results, const lab::Json& report);

}  // namespace baton::report
