#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "baton/lab/runner.h"
#include "baton/sheet/document.h"
#include "baton/sheet/sheets.h"

namespace baton::sheet {

/// Results of experiments, and where they come from in words.
struct ResultSet {
  std::string devices;  // cpu, cuda, or the name of a cluster
  std::string summary;  // "2 cores of a Xeon", "pcie-5 (five RTX 3090)"
  bool simulated = false;
  bool parts_of_gpu = false;                        // true if the devices are parts of a GPU, which share its memory
  std::int64_t most_devices = 0;                    // the devices that there are; 0: as many as are asked for
  std::map<std::string, lab::Result> results = {};  // by experiment
};

/// The student, the sheet, and how the hand-in was made.
struct Cover {
  std::string name;
  std::string date;
  std::string command;             // makes the hand-in again
  std::string full_command;        // makes it at the sheet's own sizes
  std::string large_cluster = {};  // has as many devices as any sheet asks for
};

/// The results from which a sheet is answered. `beside` has what the first cannot show: simulated where devices shared
/// cores, measured where a simulation has no losses and no noise.
struct Evidence {
  ResultSet first;
  ResultSet beside = {};
};

/// A note on how other processes affected the measured times; empty if they did not.
std::string busy_note(const Evidence& evidence);

/// The document of a sheet. Every number in it is of the evidence; a question that this does not answer says so.
Document compose(const Sheet& sheet, const std::vector<SheetTask>& tasks, const Cover& cover, const Evidence& evidence);

/// The answer to a question out of results, within this many words; empty if there is none.
std::string find_answer(const ResultSet& source, const std::string& id, std::size_t words = most_words_of_answer);
/// True if a row of the result had more devices than cores.
bool oversubscribed(const lab::Result& result);

/// True if the result has smaller sizes than the sheet.
bool is_reduced(const lab::Result& result);

/// The job that is trained at a point of an experiment of data parallelism or of splits, whatever experiment asks for it:
/// two points of equal jobs need one measurement. Empty if the experiment trains a job of its own kind.
std::string job_of(const std::string& experiment, const lab::Point& point);

/// A table of rows with one unit for each column.
DataTable grid_of(const lab::Result& result, const std::vector<std::string>& keys, std::string caption);

}  // namespace baton::sheet
