#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "baton/lab/runner.h"
#include "baton/lab/store.h"
#include "baton/report/columns.h"

/// Printers over stored results. They know nothing of measuring.
namespace baton::report {

/// The place of a question in a homework sheet, in words: "hw1/5A/Q2" is "HW1 Task 5A, Q2".
std::string reference(const std::string& id);

/// One experiment: questions with their answers, table, details, command.
std::string to_terminal(const lab::Result& result);
std::string to_markdown(const lab::Result& result);
/// A value as a cell of a CSV file: quoted if necessary, empty if it is null.
std::string csv_cell(const lab::Json& value);
/// The table with raw values, one line per row.
std::string to_csv(const lab::Result& result);

/// One experiment, as `lab run --json` prints it and the page of a run has it.
lab::Json to_json(const lab::Result& result);
/// A whole run as JSON, from which the page is made. Title, command, time and environment are those of `kept`; the environment is
/// oversubscribed if a row is.
lab::Json to_report(const std::vector<lab::Result>& results, const lab::RunSpec& kept);
std::string to_markdown(const std::vector<lab::Result>& results, const lab::Json& report);

}  // namespace baton::report
